"""What it costs to look at a busy fleet: ``python benchmarks/watching.py [--quick] [--into docs/tools.md]``.

Workers in processes of their own raise 2 000 signals a second in 500 scopes, and ``ephemeral top`` in a terminal looks
at them. A process's share is its processor time, as Linux counts it, by the time that passed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import redis

from ephemeral_redis.server import RedisServer

sys.path.insert(0, str(Path(__file__).parent))
from measuring import Row, at_least, at_most, machine, splice

RATE, SCOPES, WORKERS = 2000, 500, 4
NAMESPACE = "shop"
RAISER = """
import sys, time
from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend
url, number, rate, scopes, workers = sys.argv[1], *map(int, sys.argv[2:])
with SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", mirror=None)) as sink:
    began, raised = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate / workers)
        for place in range(raised, due):
            sink.raise_signal(f"scope-{(place * workers + number) % scopes}", payload={"place": place})
        raised = due
        time.sleep(0.01)
"""


def seconds_of(pid):
    """Processor seconds of a process so far, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid):
    """Resident memory in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def running(*command, **options):
    with subprocess.Popen([sys.executable, *command], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def environment(url):
    return {**os.environ, "EPHEMERAL_REDIS_URL": url, "EPHEMERAL_NAMESPACE": NAMESPACE}


def share(pid, seconds):
    """Share of a core that a process takes."""
    began_at, before = time.monotonic(), seconds_of(pid)
    time.sleep(seconds)
    return (seconds_of(pid) - before) / (time.monotonic() - began_at)


def top(url, seconds):
    """Draw in a terminal of 120 by 40, as a person has it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = ["-m", "ephemeral_redis.cli", "top"]
    with running(*command, env={**environment(url), "TERM": "xterm-256color"}, stdout=slave) as process:
        drawn = [0]
        threading.Thread(target=drain, args=(master, drawn), daemon=True).start()
        wait_until(lambda: drawn[0] > 20_000)  # several screens: all is loaded
        memory, calls = memory_of(process.pid), server_calls(url)
        taken = share(process.pid, seconds)
        after = server_calls(url)
        grown = memory_of(process.pid) - memory
    yield Row("ephemeral top: share of a core", "%", [taken * 100], at_most(10))
    yield Row("ephemeral top: growth of memory meanwhile", "MB", [grown], at_most(1))
    spent = sum(after[name] - calls[name] for name in after) / seconds
    yield Row("what its questions take of the server: share of a core", "%", [spent * 100])


def drain(terminal, drawn):
    with contextlib.suppress(OSError):  # it is gone
        while piece := os.read(terminal, 65536):
            drawn[0] += len(piece)


def wait_until(condition):
    while not condition():
        time.sleep(0.05)


def server_calls(url):
    """Microseconds that the server has spent on commands that only a view asks for."""
    with redis.Redis.from_url(url) as client:
        statistics = client.info("commandstats")
    asked = ("zcount", "zrange", "hgetall", "get", "xrange", "xrevrange", "info", "time", "zcard")
    return {name: statistics.get(f"cmdstat_{name}", {"usec": 0})["usec"] / 1e6 for name in asked}


def measure(quick):
    seconds = 10 if quick else 60
    with RedisServer() as server, contextlib.ExitStack() as stack:
        for number in range(WORKERS):
            values = [number, RATE, SCOPES, WORKERS]
            stack.enter_context(running("-c", RAISER, server.url, *map(str, values)))
        wait_for_load(server.url)
        rows = list(load(server.url))
        rows += top(server.url, seconds)
    return rows


def wait_for_load(url):
    """Wait until all scopes are raised, and the seconds that are counted are full."""
    with redis.Redis.from_url(url) as client:
        wait_until(lambda: client.zcard(f"{{{NAMESPACE}}}:n1") >= SCOPES)
    time.sleep(11)


def load(url):
    with redis.Redis.from_url(url) as client:
        names, before = client.zcard(f"{{{NAMESPACE}}}:n1"), int(client.hget(f"{{{NAMESPACE}}}:m", "s"))
        began_at = time.monotonic()
        time.sleep(5)
        rate = (int(client.hget(f"{{{NAMESPACE}}}:m", "s")) - before) / (time.monotonic() - began_at)
    yield Row("the load: signals a second", "/s", [rate], at_least(0.95 * RATE))
    yield Row("the load: scopes", "", [names], at_least(SCOPES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 seconds instead of 60")
    parser.add_argument("--into", type=Path, help="a document to put the figures into, between its marks")
    options = parser.parse_args()
    lines = [machine(), *map(str, measure(options.quick))]
    print(*lines, sep="\n")
    if options.into is not None:
        splice(options.into, lines)


if __name__ == "__main__":
    main()
