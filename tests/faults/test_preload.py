"""Servers that load an application and fork it, or import it in each worker: every worker is a sink of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend

pytestmark = [pytest.mark.real_time, pytest.mark.server]

ROOT = Path(__file__).parents[2]
WORKERS = 3
GUNICORN = [sys.executable, "-m", "gunicorn", "--workers", str(WORKERS), "--log-level", "warning", "--bind"]
UVICORN = [sys.executable, "-m", "uvicorn", "--workers", str(WORKERS), "--log-level", "warning", "--uds"]


def test_a_sink_that_is_opened_in_a_fork_is_one_of_its_own(server, until):
    # As an application that a server loads before it forks, and that opens its sink where it starts.
    unopened = SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="unopened"))
    reads, writes = os.pipe()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            with unopened:
                unopened.raise_signal("child")
                told = f"{unopened.origin} {unopened.backend.origin} {unopened.sense('child')[0].origin}\n"
            os.write(writes, told.encode())
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(writes)
    with open(reads) as told:  # noqa: PTH123  a pipe has no path
        origins = [set(line.split()) for line in told]
    assert [len(names) for names in origins] == [1, 1]
    assert len(set.union(*origins, {unopened.origin})) == 3


def test_a_sink_that_is_opened_again_raises_as_who_it_is_on_the_bus(server, until):
    sink = SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="again"))
    origins = []
    for _ in range(2):
        with sink:
            assert sink.origin == sink.backend.origin
            origins.append(sink.origin)
    assert origins[0] != origins[1]


def test_what_listens_in_a_fork_hears_the_others(server, joined, until):
    with joined(server.url, 2) as (one, two):
        heard = []
        one.subscribe(lambda event: heard.append((event.signal, threading.current_thread().name)), "for.child, parent")
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                one.raise_signal("child")
                until(lambda: ("for.child", "ephemeral-delivery") in heard)
                code = 0
            finally:
                os._exit(code)
        os.close(writes)
        os.close(reads)
        until(lambda: two.detect("child"))
        two.raise_signal("for.child")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        until(lambda: heard == [("for.child", "ephemeral-delivery")])


class Site:
    """A server of several workers, and whoever asks it."""

    def __init__(self, process, path):
        self.process = process
        self._path = path
        self._lock = threading.Lock()
        self.raised = Counter()
        self.heard = {}

    def ask(self, count):
        """Have whichever worker takes this raise so many signals; return what it answers."""
        # A connection each: one that stays open stays with one worker.
        connection = http.client.HTTPConnection("site", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        with contextlib.closing(connection), connection.sock:
            connection.sock.connect(self._path)
            connection.request("GET", f"/?{count}")
            told = json.loads(connection.getresponse().read())
        with self._lock:
            self.raised[told["origin"]] += count
            self.heard[told["origin"]] = told["heard"]
        return told

    def answers(self):
        try:
            self.ask(1)
        except OSError:
            assert self.process.poll() is None, "the server has ended, and said why above"
            return False
        return True

    def all_know_each_other(self):
        # Several at once, so that no worker is quick enough to take them all.
        threads = [threading.Thread(target=self.ask, args=(1,)) for _ in range(2 * WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(self.heard) == WORKERS and all(
            set(self.heard) - {origin} <= set(heard) for origin, heard in self.heard.items()
        )


FORKED = ["--preload", "--worker-class"]
SERVERS = {
    "gunicorn": (GUNICORN, ["--preload"], "WSGI", "import"),
    "gunicorn with threads": (GUNICORN, ["--preload", "--threads", "4"], "WSGI", "import"),
    "gunicorn with uvicorn": (GUNICORN, [*FORKED, "uvicorn_worker.UvicornWorker"], "ASGI", "import"),
    "gunicorn with uvicorn, lifespan": (GUNICORN, [*FORKED, "uvicorn_worker.UvicornWorker"], "ASGI", "lifespan"),
    "uvicorn": (UVICORN, [], "ASGI", "import"),
    "uvicorn, lifespan": (UVICORN, [], "ASGI", "lifespan"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_every_worker_of_a_server_is_a_sink_of_its_own(server, tmp_path, until, tried, name):
    command, options, application, opened = SERVERS[name]
    heard = Counter()
    environment = {**os.environ, "BUS_URL": server.url, "OPENED": opened, "PYTHONPATH": f"{ROOT / 'local'}:{ROOT}"}
    path = str(tmp_path / "socket")
    bound = f"unix:{path}" if command is GUNICORN else path
    with SignalSink(100_000, backend=RedisSignalBackend.from_url(server.url, namespace="web")) as observer:
        observer.subscribe(lambda event: heard.update([event.origin]), "asked")
        process = subprocess.Popen(
            [*command, bound, *options, f"web:{application}"], env=environment, cwd=Path(__file__).parent / "kit"
        )
        try:
            site = Site(process, path)
            until(lambda: Path(path).exists() and site.answers(), 60)
            until(site.all_know_each_other, 60)
            # Right before the end: what is still on its way then has to be sent by whoever ends.
            site.ask(2000)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
        until(lambda: heard.total() >= site.raised.total())
        assert heard == site.raised
        assert len(site.raised) == WORKERS
        assert observer.statistics().bus.missed == 0
    figures = {"raised": site.raised.total(), "received": heard.total(), "reported": 0}
    tried("Workers", f"{name}, {WORKERS} workers, the sink opened at {opened}, ended by SIGTERM", **figures)
