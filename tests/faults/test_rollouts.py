"""All workers are replaced, one after the other, while they work: by SIGTERM, as deployments do, and by SIGKILL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend

from .kit import rolled
from .kit.load import counted_by_origin

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]

WORKERS, RATE = 3, 100
LEASE_SECONDS = rolled.TIMEOUT + 2.0


class Observer:
    """A sink that was there before everybody else, and writes down what they raise."""

    def __init__(self, sink):
        self._sink = sink
        self.numbers = defaultdict(list)
        self.origins = {}
        self.told = []
        self.probes = []
        sink.subscribe(self._hear)

    def _hear(self, event):
        if event.signal == rolled.NUMBERED:
            self.numbers[event.origin].append(int(event.key))
        elif event.signal == "joined":
            self.origins[event.key] = event.origin
        elif event.signal.startswith("failover."):
            self.told.append(event.signal)
        elif event.signal.startswith("probe.testing"):
            self.probes.append(event.timestamp)

    def heard_of(self, name):
        return self.numbers[self.origins[name]] if name in self.origins else []


class Rollout:
    """Starts workers, replaces them and asks how it went."""

    def __init__(self, server, folder, until):
        self.folder = folder
        self._url = server.url
        self._until = until
        self._running = {}
        self._names = 0
        self.ended = {}

    def __enter__(self):
        self._sink = SignalSink(200_000, 600.0, backend=RedisSignalBackend.from_url(self._url, namespace="rollout"))
        self._sink.__enter__()
        self.observer = Observer(self._sink)
        return self

    def __exit__(self, *_):
        for process in self._running.values():
            process.kill()
            process.communicate()
        self._sink.__exit__(None, None, None)

    @property
    def missed(self):
        return self._sink.statistics().bus.missed

    def start(self):
        """Start a worker, and wait until it works."""
        name = self.begin()
        self.await_work(name)
        return name

    def begin(self):
        name, self._names = f"w{self._names}", self._names + 1
        arguments = [self._url, "rollout", str(self.folder), name, str(RATE)]
        self._running[name] = subprocess.Popen([sys.executable, rolled.__file__, *arguments], stdout=subprocess.PIPE)
        return name

    def await_work(self, name):
        self._until(lambda: len(self.observer.heard_of(name)) > 10, 60)

    def end(self, number):
        """End the oldest worker by a signal, and wait for it."""
        name = next(iter(self._running))
        process = self._running.pop(name)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        self.ended[name] = (process.returncode, json.loads(output) if output else None)

    def replace_all(self, number):
        """Replace each worker by a new one, which works before the next one ends."""
        for _ in range(WORKERS):
            self.start()
            self.end(number)

    def end_all(self, number):
        while self._running:
            self.end(number)

    def counts(self, name):
        return rolled.Work.counts(self.folder, name)


@pytest.fixture
def rollout(server, tmp_path, until):
    with Rollout(server, tmp_path, until) as rollout:
        for name in [rollout.begin() for _ in range(WORKERS)]:
            rollout.await_work(name)
        yield rollout


def test_workers_that_are_asked_to_end_lose_nothing_and_trip_nothing(rollout, server, until, tried):
    rollout.replace_all(signal.SIGTERM)
    rollout.end_all(signal.SIGTERM)
    observer, client, raised = rollout.observer, redis.Redis.from_url(server.url), Counter()
    for name, (code, said) in rollout.ended.items():
        counts = rollout.counts(name)
        raised[observer.origins[name]] = counts["raised"]
        assert counts["accepted"] > 0
        assert (code, said) == (0, {"done": counts["accepted"], "undelivered": 0, "left": 0})
        until(lambda name=name, counts=counts: len(observer.heard_of(name)) >= counts["raised"])
        assert observer.heard_of(name) == list(range(counts["raised"]))
    assert len(rollout.ended) == 2 * WORKERS
    assert rollout.missed == 0
    counted = counted_by_origin(client, "rollout", scope=rolled.NUMBERED)
    assert counted == raised
    # Healthy all along, and nobody ever said else.
    assert client.hlen("{rollout}:h") == 0
    assert observer.told == []
    figures = {"raised": raised.total(), "received": sum(len(numbers) for numbers in observer.numbers.values())}
    figures |= {"counted": counted.total(), "reported": rollout.missed}
    tried("Workers", "rolling restart of 3 workers by SIGTERM, 100/s each", **figures)


def test_workers_that_are_killed_lose_what_had_not_left_them_yet(rollout, server, until, tried):
    rollout.replace_all(signal.SIGKILL)
    rollout.end_all(signal.SIGTERM)
    observer, client, lost = rollout.observer, redis.Redis.from_url(server.url), 0
    counted = counted_by_origin(client, "rollout", scope=rolled.NUMBERED)
    for name, (code, _) in rollout.ended.items():
        counts, origin = rollout.counts(name), observer.origins[name]
        until(lambda name=name, origin=origin: len(observer.heard_of(name)) >= counted[origin])
        # Whole from the first to the last that left, and what left was counted.
        assert observer.heard_of(name) == list(range(counted[origin]))
        lost += counts["raised"] - counted[origin]
        if code == 0:
            assert counted[origin] == counts["raised"]
    assert [code for code, _ in rollout.ended.values()] == [-signal.SIGKILL] * WORKERS + [0] * WORKERS
    assert lost <= WORKERS * 20  # what waits for a batch: 5 ms of it, or what a busy machine makes of them
    assert rollout.missed == 0  # nothing came after what was lost, so nothing tells of it
    assert client.hlen("{rollout}:h") == 0
    received = sum(len(numbers) for numbers in observer.numbers.values())
    figures = {"raised": received + lost, "received": received, "counted": counted.total()}
    tried("Workers", "rolling restart of 3 workers by SIGKILL, 100/s each", **figures, reported=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fleet_stays_down_through_a_rolling_restart_and_comes_back_once(rollout, server, until, tried, number):
    observer, client = rollout.observer, redis.Redis.from_url(server.url)
    broken = rollout.folder / "broken"
    broken.touch()
    until(lambda: observer.told == ["failover.requested:pri1→pri2"])
    epoch = client.hget("{rollout}:h", "pri1").split(b":")[1]
    rollout.replace_all(number)
    assert client.hget("{rollout}:h", "pri1").split(b":")[1] == epoch
    newcomers = [f"w{index}" for index in range(WORKERS, 2 * WORKERS)]
    # They knew before they took their first item: not one went the broken way.
    assert [rollout.counts(name)["primary"] for name in newcomers] == [0] * WORKERS
    probes = len(observer.probes)
    until(lambda: len(observer.probes) > probes + 3)
    longest = max(after - before for before, after in pairwise(observer.probes))
    broken.unlink()
    until(lambda: "failover.restored:pri1" in observer.told)
    until(lambda: all(rollout.counts(name)["primary"] > 10 for name in newcomers))
    rollout.end_all(signal.SIGTERM)
    assert observer.told == ["failover.requested:pri1→pri2", "failover.restored:pri1"]
    # A lease whose owner is gone is held by nobody for longer than it runs; the rest is a busy machine's.
    assert longest < LEASE_SECONDS + rolled.PROBE_INTERVAL + 2.0
    tried(
        "Server",
        f"rolling restart by {number.name} while pri1 is down",
        told=len(observer.told),
        longest=f"{longest:.1f} s between probes",
    )
