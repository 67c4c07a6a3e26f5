"""What a dashboard costs while it shows a busy fleet: ``python benchmarks/dashboard.py [--minutes 10] [--into FILE]``.

A private server takes 2 000 signals a second in 500 scopes from one process; ``ephemeral dashboard`` serves a headless
Chromium (``apt-get install chromium``), and a ladder in this process fails over now and then. Processor times are those
of the whole process over the whole time, and hardly depend on what else the machine does; the delay does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))
from measuring import splice

from tests.browser_kit import Browser

RATE, SCOPES = 2_000, 500
NAMESPACE = "busy"
HEADLINE = "document.querySelector('#sentences').textContent"


def raise_signals(url):
    """Raise them for ever, in slices of 10 ms; a process of its own."""
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=NAMESPACE, name="busy", mirror=None)) as sink:
        began_at, count = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began_at) * RATE)
            while count < due:
                # Half of the scopes are first segments, half second ones.
                sink.raise_signal(f"area-{count % (SCOPES // 2)}:part:{count}", key=f"customer-{count % 1000}")
                count += 1
            time.sleep(0.01)


@contextlib.contextmanager
def process(*command):
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


class Ladder:
    """Two rungs, the first of which fails on request."""

    def __init__(self, url):
        self._backend = RedisSignalBackend.from_url(url, namespace=NAMESPACE, name="ladder", mirror=None)
        self._is_down = False

    @contextlib.contextmanager
    def opened(self):
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(self._open()) as first:
            self._call = lambda: portal.call(first.call, "item")
            yield self

    @contextlib.asynccontextmanager
    async def _open(self):
        async def refuse(item):
            if self._is_down:
                raise ConnectionError

        async def take(item):
            pass

        options = {"failure_threshold": 1, "reroute_failed": True, "probe_interval": 0.1}
        async with (
            SignalSink(backend=self._backend) as sink,
            PriorityProcessorAtom(1, refuse, sink, **options) as first,
            PriorityProcessorAtom(2, take, sink),
        ):
            yield first

    def delay(self, browser):
        """Return the seconds from a failing call to the page that says so."""
        self._is_down = True
        began_at = time.time()
        self._call()
        browser.until(f"{HEADLINE}.includes('pri1 is down')")
        delay = browser.evaluate("Date.now() / 1000") - began_at
        self._is_down = False
        while "pri1 is down" in browser.evaluate(HEADLINE):
            self._call()
            time.sleep(0.05)
        return delay


def used(pid):
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Share:
    """How much of a core processes use, from its making on."""

    def __init__(self, *pids):
        self._pids = pids
        self._began = [used(pid) for pid in pids]
        self._began_at = time.monotonic()

    def __str__(self):
        passed = time.monotonic() - self._began_at
        return " / ".join(
            f"{100 * (used(pid) - was) / passed:.1f}" for pid, was in zip(self._pids, self._began, strict=True)
        )


def page_memory(browser):
    browser.events.clear()
    browser.call("HeapProfiler.collectGarbage")
    nodes = browser.call("Memory.getDOMCounters")["nodes"]
    return f"{browser.call('Runtime.getHeapUsage')['usedSize'] / 2**20:.2f} MiB, {nodes} nodes"


def rows(minutes):
    with (
        RedisServer() as server,
        process(__file__, "--raise", server.url),
        Ladder(server.url).opened() as ladder,
        process(
            "-m", "ephemeral_redis.cli", "dashboard", "--redis", server.url, "--namespace", NAMESPACE, "--port", "0"
        ) as own,
    ):
        address = own.stdout.readline().split()[0]
        time.sleep(15)  # the window of rates and the reading's first tables are behind it
        share = Share(own.pid, server.pid)
        time.sleep(min(30, 60 * minutes))
        yield "nobody looks: dashboard / server", share, "% of a core"
        with Browser() as browser:
            browser.resize(1280, 900)
            browser.open(address)
            browser.until("document.querySelectorAll('#signals tbody tr').length === 100", 30)
            delays = [ladder.delay(browser) for _ in range(10)]
            time.sleep(20)
            share, memory = Share(own.pid, server.pid), [page_memory(browser)]
            resident_before = resident(own.pid)
            for _ in range(2):
                time.sleep(30 * minutes)
                memory.append(page_memory(browser))
            yield "one page is open: dashboard / server", share, "% of a core"
            yield "memory of the dashboard, before / after", f"{resident_before:.0f} / {resident(own.pid):.0f}", "MiB"
            for when, what in zip(("at first", "half-way", "at the end"), memory, strict=True):
                yield f"memory of the page, {when}", what, ""
            yield (
                "failing call -> the page says so, p50 / most of 10",
                f"{statistics.median(delays) * 1000:.0f} / {max(delays) * 1000:.0f}",
                "ms",
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long the page stays open")
    parser.add_argument("--into", type=Path, help="a document to put the table into, between its marks")
    parser.add_argument("--raise", dest="url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.url is not None:
        raise_signals(options.url)
    head = (
        f"{RATE:,} signals a second, {SCOPES} scopes, {options.minutes:.0f} min, Python {sys.version.split()[0]}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"
    )
    lines = [head]
    print(lines[0])
    for what, value, unit in rows(options.minutes):
        lines.append(f"{what:<52} {value!s:>24}  {unit}".rstrip())
        print(lines[-1], flush=True)
    if options.into is not None:
        splice(options.into, lines, "dashboard")


if __name__ == "__main__":
    main()
