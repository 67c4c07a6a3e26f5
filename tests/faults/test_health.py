"""Health when workers, their network and the server fail for real: one edge, one prober, and always a recovery."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
import redis

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend

from .kit.proxy import Proxy

pytestmark = [pytest.mark.real_time, pytest.mark.server]

PROBER = Path(__file__).with_name("prober.py")
LEASE, INTERVAL = 2.5, 0.2
LATE = 20.0
"""How late all may be on a machine that is busy with other things; what is proved is that it comes."""
PROBE_SECONDS = 0.06


class Observer:
    """A service of its own, which counts how many ask it at once whether it is well. A context manager."""

    def __init__(self):
        self.is_down = False
        self.probing = []
        self.most_probing = 0
        self.probes = 0
        self._turn = threading.Condition()
        observer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                what, _, pid = self.rfile.readline().decode().partition(" ")
                if what == "probe":
                    observer._probed(int(pid), self)
                elif what == "work":
                    self._answer()

            def _answer(self):
                with contextlib.suppress(OSError):
                    self.wfile.write(b"no\n" if observer.is_down else b"yes\n")

            def ends_within(self, seconds):
                """Whether who asks is gone before so many seconds are over."""
                self.connection.settimeout(seconds)
                try:
                    return self.connection.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _probed(self, pid, handler):
        with self._turn:
            self.probing.append(pid)
            self.probes += 1
            self.most_probing = max(self.most_probing, len(self.probing))
            self._turn.notify_all()
        try:
            if not handler.ends_within(PROBE_SECONDS):
                # Counted out before it is answered: the next one may begin as soon as the verdict is in.
                self._leave(pid)
                handler._answer()
        finally:
            self._leave(pid)

    def _leave(self, pid):
        with self._turn:
            if pid in self.probing:
                self.probing.remove(pid)

    def wait_for_prober(self, among):
        """Return the process that probes next."""
        with self._turn:
            before = self.probes
            assert self._turn.wait_for(lambda: self.probes > before and set(self.probing) & set(among), LATE)
            return next(pid for pid in self.probing if pid in among)


@contextlib.contextmanager
def probers(url, namespace, port, count):
    processes = {}

    def start():
        process = subprocess.Popen(
            [sys.executable, str(PROBER), url, namespace, str(port)], stdout=subprocess.PIPE, text=True
        )
        processes[process.pid] = process
        return process

    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        process = processes.pop(pid)
        process.wait()
        process.stdout.close()

    try:
        for process in [start() for _ in range(count)]:
            assert process.stdout.readline() == "ready\n"
        yield processes, start, kill
    finally:
        for pid in list(processes):
            kill(pid)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_prober_that_is_killed_at_any_instant_holds_up_nobody_and_no_two_probe_at_once(server, until, tried, seed):
    rounds = 6
    chance = random.Random(seed)
    slowest = 0.0
    with (
        Observer() as observer,
        SignalSink(100_000, max_age=3600, backend=RedisSignalBackend.from_url(server.url, namespace="kill")) as sink,
        probers(server.url, "kill", observer.port, 3) as (processes, start, kill),
    ):

        def told(name):
            return len(sink.sense(f"failover.{name}:pri1*"))

        for _ in range(rounds):
            trips, recoveries = told("requested"), told("restored")
            observer.is_down = True
            until(lambda trips=trips: told("requested") > trips, LATE)
            pid = observer.wait_for_prober(processes)
            # Before it is answered, while its verdict travels, or once it waits for the next one.
            threading.Event().wait(chance.uniform(0.0, 2.5 * PROBE_SECONDS))
            kill(pid)
            observer.is_down = False
            killed_at = time.monotonic()
            until(lambda recoveries=recoveries: told("restored") > recoveries, LEASE + INTERVAL + LATE)
            slowest = max(slowest, time.monotonic() - killed_at)
            start()
        assert observer.most_probing == 1
        # No bad probe brings it back, so whoever was killed owed nobody an edge: all are told, and once.
        assert (told("requested"), told("restored")) == edges_of_the_table(server, "kill")
        signals = Counter(event.signal for event in sink.sense("probe.*"))
        assert signals["probe.success:pri1"] == told("restored")
        # What a killed one began it did not end.
        unended = signals["probe.testing:pri1"] - signals["probe.success:pri1"] - signals["probe.failed:pri1"]
        assert 0 <= unended <= rounds
        assert sink.statistics().bus.undecodable == 0
        tried(
            "Health",
            f"the prober killed at a random instant, {rounds} times, seed {seed}",
            recovered=rounds,
            unended_probes=unended,
            probers_at_once=observer.most_probing,
            slowest_recovery_s=round(slowest, 1),
        )


class Service:
    """A service, and one worker's link to it."""

    def __init__(self):
        self.is_down = False
        self.probes = 0
        self.done = []

    async def __call__(self, item):
        if self.is_down:
            raise ConnectionError(item)
        self.done.append(item)

    async def probe(self):
        self.probes += 1
        return not self.is_down


class Worker:
    def __init__(self, sink, atom, primary, backup, proxy):
        self.sink = sink
        self.atom = atom
        self.primary = primary
        self.backup = backup
        self.proxy = proxy

    @property
    def health(self):
        return self.atom.get_health()

    def told(self, *names):
        own = [event for event in self.sink.sense() if event.origin == self.sink.origin]
        return [event.signal for event in own if event.signal.startswith(names)]

    async def trip(self):
        for number in range(3):
            await self.atom.enqueue(f"{self.sink.origin}-{number}")

    def cut(self):
        """Take the bus away from this worker alone."""
        self.proxy.weather.is_refusing = True
        self.proxy.cut()

    def join(self):
        self.proxy.clear()


@contextlib.asynccontextmanager
async def fleet(server, count, **options):
    """Yield workers, each behind a piece of network of its own."""
    options = {"failure_threshold": 3, "probe_interval": 0.1, "reroute_failed": True, "timeout": 1.0, **options}
    async with contextlib.AsyncExitStack() as stack:
        workers = []
        for _ in range(count):
            proxy = stack.enter_context(Proxy(server.url))
            # What a test counts in the end must outlast it on the slowest machine.
            backend = RedisSignalBackend.from_url(proxy.url, namespace="health", retention=600.0)
            sink = await stack.enter_async_context(SignalSink(20_000, max_age=600.0, backend=backend))
            primary, backup = Service(), Service()
            atom = PriorityProcessorAtom(1, primary, sink, probe=primary.probe, **options)
            await stack.enter_async_context(atom)
            await stack.enter_async_context(PriorityProcessorAtom(2, backup, sink, **options))
            workers.append(Worker(sink, atom, primary, backup, proxy))
        await become(lambda: all(worker.atom._ladder.health._is_alone is False for worker in workers))
        yield workers


async def become(condition, seconds=10.0):
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  until the news are here
            await anyio.sleep(0.002)


async def shared_count(worker, name):
    assert await worker.sink.flush(5)
    return await worker.sink.shared_count(name)


async def test_a_sick_node_that_loses_its_bus_too_is_out_alone_and_returns_alone(server, tried):
    async with fleet(server, 3, health=HealthOptions(quorum=2)) as (sick, *others):
        sick.primary.is_down = True
        sick.cut()
        await become(lambda: sick.sink.is_degraded)
        await sick.trip()
        await become(lambda: len(sick.backup.done) == 3)
        assert sick.health.is_local
        sick.join()
        await become(lambda: others[0].atom.consecutive_failures == 3)
        probes = sick.primary.probes
        await become(lambda: sick.primary.probes > probes + 1)
        assert sick.health.is_local
        for other in others:
            assert other.atom.is_healthy
            assert other.primary.probes == 0
        sick.primary.is_down = False
        await become(lambda: sick.atom.is_healthy)
        assert sick.told("failover.") == ["failover.requested:pri1→pri2", "failover.restored:pri1"]
        assert await shared_count(sick, "failover.requested") == 1
        assert [other.told("failover.", "probe.") for other in others] == [[], []]
        tried("Health", "quorum of 2, one sick node whose bus is cut too", local_trips=1, fleet_trips=0, recovered=1)


@pytest.mark.parametrize("last", ["isolate", "reset_health"])
async def test_of_decisions_that_contradict_that_of_who_comes_back_last_holds(server, last, tried):
    async with fleet(server, 3, probe_interval=60.0) as workers:
        isolates, resets, watches = workers
        watches.primary.is_down = True
        await watches.trip()
        await become(lambda: not any(worker.atom.is_healthy for worker in workers))
        for worker in (isolates, resets):
            worker.cut()
        await become(lambda: isolates.sink.is_degraded and resets.sink.is_degraded)
        isolates.atom.isolate()
        resets.atom.reset_health()
        assert (isolates.health.state, resets.health.state, watches.health.state) == ("isolated", "up", "down")
        order = (resets, isolates) if last == "isolate" else (isolates, resets)
        for worker in order:
            worker.join()
            await become(lambda worker=worker: watches.health.by == worker.sink.origin)
        state = "isolated" if last == "isolate" else "up"
        await become(lambda: [worker.health.state for worker in workers] == [state] * 3)
        assert {worker.health.by for worker in workers} == {order[1].sink.origin}
        await become(lambda: len({worker.health.epoch for worker in workers}) == 1)
        tried("Health", f"contradicting decisions by hand in an outage, {last} back last", agreed=3)


async def test_a_lease_whose_grant_was_lost_on_the_way_ends_by_time(server, tried):
    async with fleet(server, 1, probe_interval=0.3, timeout=0.2) as (worker,):
        worker.primary.is_down = True
        await worker.trip()
        await become(lambda: not worker.atom.is_healthy)
        await become(lambda: worker.sink.statistics().bus.outbox == 0)
        before = worker.primary.probes
        tested = worker.told("probe.testing")
        worker.proxy.lose_replies(1)
        await become(lambda: worker.proxy.lost_replies == 1)
        await become(lambda: worker.primary.probes > before)
        worker.primary.is_down = False
        await become(lambda: worker.atom.is_healthy)
        assert worker.told("failover.") == ["failover.requested:pri1→pri2", "failover.restored:pri1"]
        assert len(worker.told("probe.testing")) >= len(tested) + 1
        assert len(worker.told("probe.success")) == 1
        tried("Health", "the answer to a lease lost on the way", recovered=1, edges=1)


async def test_no_edge_is_lost_or_doubled_however_many_answers_are_lost(server, tried):
    rounds = 8
    async with fleet(server, 2, probe_interval=0.05, timeout=0.2) as (one, two):
        for number in range(rounds):
            for worker in (one, two):
                worker.primary.is_down = True
            one.proxy.lose_replies(1)
            await one.trip()
            await become(lambda: not one.atom.is_healthy and not two.atom.is_healthy)
            two.proxy.lose_replies(1)
            for worker in (one, two):
                worker.primary.is_down = False
            await become(lambda: one.atom.is_healthy and two.atom.is_healthy)
            await become(lambda number=number: len(one.sink.sense("failover.restored*")) > number)
        with anyio.fail_after(8):
            while True:  # one may be told between the two questions
                if await shared_count(one, "failover.restored") == await shared_count(two, "failover.restored"):
                    break
                await anyio.sleep(0.05)
        trips, recoveries = edges_of_the_table(server)
        told = [event.payload["local"] for event in one.sink.sense("failover.requested*")]
        # Each trip of the fleet once; some were told as one's own before the fleet had it.
        assert told.count(False) <= trips <= len(told)
        restored = [event.payload["local"] for event in one.sink.sense("failover.restored*")]
        assert restored.count(False) <= recoveries <= len(restored)
        tried("Health", f"answers lost at trips and at verdicts, {rounds} rounds", trips=trips, recoveries=recoveries)


def edges_of_the_table(server, namespace="health"):
    """Return how often the fleet's row of the first rung went down and came up."""
    trips, recoveries, was_up = 0, 0, True
    for _, fields in redis.Redis.from_url(server.url).xrange(f"{{{namespace}}}:c"):
        if fields[b"p"] == b"pri1" and b"r" in fields:
            is_up = fields[b"r"].split(b":")[2] == b"u"
            trips += was_up and not is_up
            recoveries += is_up and not was_up
            was_up = is_up
    return trips, recoveries
