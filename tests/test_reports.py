"""How a worker tells the bus of calls that ended, and what becomes of those that nobody is told of."""

from __future__ import annotations

import time

import anyio
import fakeredis
import pytest
from redis.exceptions import ResponseError

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink, _sink_bus
from ephemeral.abc import HealthRecord, HealthReport, HealthRules, HealthWatcher
from ephemeral_redis import RedisSignalBackend, _reports
from ephemeral_redis._clock import BusClock
from ephemeral_redis._mirror import Mirror
from ephemeral_redis._reports import Reports
from ephemeral_redis._statistics import Tally

ORIGIN = "00" * 8
WINDOW = 10.0


class Watcher(HealthWatcher):
    def __init__(self):
        self.heard = []

    def table(self, rows):
        pass

    def news(self, news):
        self.heard.append((news.kind, news.origin, news.reported))

    def lost(self):
        pass


class Refusing:
    """A server that refuses what it is told."""

    origin = bytes.fromhex(ORIGIN)

    async def report(self, *arguments, **more):
        raise ResponseError("WRONGTYPE")


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def reports(watcher):
    mirror = Mirror()
    mirror.watch(watcher)
    return Reports(BusClock(), Tally(), mirror, ORIGIN)


def report(*, has_failed=True):
    rules = HealthRules.of(HealthOptions(), failure_window=WINDOW)
    return HealthReport("pri1", 0, has_failed, rules, lambda now: HealthRecord("pri1", 1, now, ORIGIN, "down"))


async def test_who_told_of_a_failure_too_late_hears_that_it_counts_for_nothing(reports, watcher):
    for has_failed in (True, False, True):
        reports.add(report(has_failed=has_failed), time.monotonic() - WINDOW - 1)
    await reports.tell(None)
    assert watcher.heard == [("uncounted", ORIGIN, 1)] * 2
    assert len(reports) == 0


async def test_who_told_of_a_failure_that_the_server_refuses_hears_of_it(reports, watcher):
    reports.add(report(), time.monotonic())
    await reports.tell(Refusing())
    assert watcher.heard == [("uncounted", ORIGIN, 1)]


def test_who_told_of_a_failure_that_had_no_room_hears_of_it(reports, watcher, monkeypatch):
    monkeypatch.setattr(_reports, "MAX_REPORTS", 2)
    for has_failed in (True, False, True, True):
        reports.add(report(has_failed=has_failed), time.monotonic())
    assert watcher.heard == [("uncounted", ORIGIN, 1)]
    assert reports.dropped == 2


@pytest.mark.real_time
async def test_a_ladder_waits_for_no_word_on_what_came_too_late_to_count(monkeypatch):
    async def fail(item):
        raise ConnectionError(item)

    server = fakeredis.FakeServer()
    backend = RedisSignalBackend(lambda **_: fakeredis.FakeAsyncRedis(server=server), namespace="x")
    async with SignalSink(backend=backend) as sink:
        server.connected = False
        while not sink.is_degraded:
            sink.raise_signal("a")
            await anyio.sleep(0.01)
        async with PriorityProcessorAtom(1, fail, sink, failure_window=0.05) as atom:
            await atom.enqueue("w")
        await anyio.sleep(0.1)
        server.connected = True
        assert await sink.flush(10)
        monkeypatch.setattr(_sink_bus, "CLOSE_SECONDS", 10.0)
        left_at = anyio.current_time()
    assert anyio.current_time() - left_at < 5  # of ten, if the ladder waited
