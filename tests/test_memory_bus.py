"""Faults of a bus, in virtual time: cut off, back again, late, twice, and without its data."""

from __future__ import annotations

import contextlib
from functools import partial

import anyio
import pytest

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral.abc import HealthWatcher
from ephemeral.testing import MemoryBus

PERIOD = 1.0


class Worker:
    def __init__(self, sink, rules):
        self.sink = sink
        self.now = current_loop().now
        self.store = SharedHealthStore(sink.backend)
        self.changes = []
        self.store.on_change = self.changes.append
        self.store.register("pri1", rules, self.now())

    @property
    def record(self):
        return self.store.record("pri1")

    @property
    def edges(self):
        return [change.cause for change in self.changes if change.is_own and (change.went_down or change.came_up)]

    def own_edges(self):
        """Return the edges to tell, each with whether it is told as one of this worker alone."""
        edges = [change for change in self.changes if change.is_own and (change.went_down or change.came_up)]
        return [(change.cause, change.is_local) for change in edges]

    def fail(self, times=1):
        for _ in range(times):
            self.store.failed("pri1", self.record.epoch, self.now())


def rules_of(threshold=3, window=10.0, **options):
    return HealthRules.of(
        HealthOptions(**options),
        failure_threshold=threshold,
        failure_window=window,
        probe_interval=PERIOD,
        timeout=5.0,
    )


@contextlib.asynccontextmanager
async def fleet(count, rules=None, **options):
    async with MemoryBus(**options) as bus, contextlib.AsyncExitStack() as stack:
        sinks = [
            await stack.enter_async_context(SignalSink(backend=bus.backend(), clock=current_loop().now))
            for _ in range(count)
        ]
        workers = [Worker(sink, rules or rules_of()) for sink in sinks]
        await anyio.sleep(0.001)
        yield bus, workers


async def settle():
    """Let everything arrive; no timer of the rules is that short."""
    await anyio.sleep(0.01)


async def test_news_take_their_time_and_arrive_in_order():
    async with fleet(2, delay=0.2) as (bus, (one, two)):
        started_at = one.now()
        async with two.sink.listen() as events:
            one.sink.raise_signal("a")
            bus.delay = 0.0
            one.sink.raise_signal("b")
            assert [(await anext(events)).signal for _ in range(2)] == ["a", "b"]
        assert two.now() - started_at == pytest.approx(0.2)


async def test_what_comes_twice_is_passed_on_once():
    async with fleet(2) as (bus, (one, two)):
        bus.repeats = True
        one.sink.raise_signal("a")
        one.fail(3)
        await settle()
        assert len(two.sink.sense("a")) == 1
        assert two.sink.statistics().bus.repeated == 1
        assert one.edges == ["failures"]
        assert len(two.changes) == 1


async def test_signals_wait_for_the_bus_and_are_dated_by_when_they_were_raised():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        assert one.sink.is_degraded
        one.sink.raise_signal("a")
        assert not await one.sink.flush(5)
        assert not two.sink.detect("a")
        assert await one.sink.shared_count("a") == 1  # its own, while nobody can be asked
        await anyio.sleep(20)
        bus.join()
        await settle()
        (event,) = two.sink.sense("a")
        assert two.sink.now() - event.timestamp == pytest.approx(25, abs=0.1)
        assert await two.sink.shared_count("a", within=20) == 0
        assert await two.sink.shared_count("a", within=30) == 1


async def test_signals_raised_meanwhile_by_others_are_caught_up_on():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(two.sink.backend)
        one.sink.raise_signal("a")
        bus.join()
        await settle()
        assert two.sink.detect("a")
        assert two.sink.statistics().bus.missed == 0


async def test_signals_that_never_come_are_counted_and_told_here_alone():
    async with fleet(2) as (bus, (one, two)):
        one.sink.raise_signal("first")
        await settle()
        bus.cut(two.sink.backend)
        for _ in range(4):
            one.sink.raise_signal("lost")
        await settle()
        bus.lose_data()
        bus.join()
        one.sink.raise_signal("last")
        await settle()
        assert two.sink.statistics().bus.missed == 4
        assert two.sink.detect("bus.gap:4")
        assert not one.sink.detect("bus.gap:4")


async def test_alone_a_worker_goes_by_what_it_sees_and_says_so():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.fail(3)
        assert one.record.state == "down"
        assert one.record.is_local
        assert one.edges == ["failures"]
        assert two.record.is_up
        await anyio.sleep(PERIOD)
        lease = await one.store.acquire("pri1", one.now())
        one.store.finish(lease, one.now(), is_good=True)
        assert one.record.is_up
        assert one.edges == ["failures", "probe_passed"]


async def test_what_a_worker_does_alone_says_so_whatever_the_fleet_holds():
    async with fleet(2) as (bus, (one, two)):
        one.fail(3)
        await anyio.sleep(PERIOD)
        lease = await one.store.acquire("pri1", one.now())
        bus.cut(one.sink.backend)
        await settle()
        one.store.finish(lease, one.now(), is_good=True)  # of the fleet's trip
        one.store.isolate("pri1", one.now())
        one.store.reset("pri1", one.now())
        assert one.own_edges() == [
            ("failures", False), ("probe_passed", True), ("isolate", True), ("reset", True)
        ]  # fmt: skip
        bus.join()
        await settle()
        one.store.isolate("pri1", one.now())
        await settle()
        two.store.reset("pri1", two.now())
        await settle()
        assert one.own_edges()[4:] == [("isolate", False)]
        assert two.own_edges() == [("reset", False)]


async def test_a_trip_alone_that_is_over_is_told_as_one_of_this_worker():
    async with fleet(2, rules_of(quorum=2)) as (_, (one, two)):
        one.fail(3)
        one.store.reset("pri1", one.now())
        await settle()
        assert one.own_edges() == [("failures", True), ("reset", True)]
        assert two.own_edges() == []
        assert two.record.is_up


async def test_a_trip_taken_alone_that_the_fleet_confirms_stays_and_is_told_by_the_fleet():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.fail(3)
        await anyio.sleep(0.5)
        bus.join()
        await settle()
        assert not one.record.is_up
        assert not one.record.is_local
        assert one.record.epoch == two.record.epoch
        # The failures count from when they happened, the first probe too.
        assert two.record.failures == 3
        assert [change.cause for change in one.changes] == ["failures", "failures"]
        assert not any(change.came_up for change in one.changes)


async def test_failures_of_which_the_fleet_never_answered_count_once_the_bus_is_lost():
    async with fleet(2, delay=1.0) as (bus, (one, _)):
        one.fail(3)
        await settle()
        assert one.record.is_up
        bus.cut(one.sink.backend)
        await settle()
        assert one.record.is_local
        assert not one.record.is_up
        assert one.record.failures == 3


async def test_failures_that_are_too_few_take_nothing_down_when_the_bus_is_lost():
    async with fleet(2) as (bus, (one, _)):
        one.fail(2)
        await settle()
        bus.cut(one.sink.backend)
        await settle()
        assert one.record.is_up
        one.fail(1)
        assert not one.record.is_up


async def test_a_trip_taken_alone_that_is_out_of_the_window_by_then_is_dropped():
    async with fleet(2, rules_of(window=2.0)) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.fail(3)
        await anyio.sleep(5)
        assert not one.record.is_up
        bus.join()
        await settle()
        assert one.record.is_up
        assert two.record.is_up
        assert one.edges == ["failures", "reset"]


async def test_what_happened_meanwhile_is_adopted_on_return():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(two.sink.backend)
        await settle()
        one.fail(3)
        await settle()
        assert two.record.is_up
        bus.join()
        await settle()
        assert two.record.epoch == one.record.epoch
        assert two.edges == []


async def test_a_verdict_found_alone_is_offered_to_the_fleet_on_return():
    async with fleet(2) as (bus, (one, two)):
        one.fail(3)
        await anyio.sleep(PERIOD + 0.1)
        lease = await one.store.acquire("pri1", one.now())
        bus.cut(one.sink.backend)
        await settle()
        one.store.finish(lease, one.now(), is_good=True)
        assert one.record.is_up
        bus.join()
        await settle()
        assert two.record.is_up
        assert one.record.is_up
        assert not one.changes[-1].went_down


async def test_isolating_while_alone_reaches_the_fleet_on_return():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.store.isolate("pri1", one.now())
        assert one.record.state == "isolated"
        bus.join()
        await settle()
        assert two.record.state == one.record.state == "isolated"
        assert one.edges == ["isolate"]


async def test_a_bus_that_lost_its_data_is_healed_by_those_who_know():
    async with fleet(3) as (bus, workers):
        workers[0].fail(3)
        await settle()
        epoch = workers[0].record.epoch
        bus.cut()
        bus.lose_data()
        await settle()
        bus.join()
        await settle()
        async with SignalSink(backend=bus.backend()) as sink:
            late = Worker(sink, rules_of())
            await settle()
            assert late.record.state == "down"
            assert late.record.epoch == epoch
        assert [worker.edges for worker in workers] == [["failures"], [], []]


async def test_a_bus_may_be_away_from_the_beginning():
    async with MemoryBus() as bus:
        backends = [bus.backend(), bus.backend()]
        bus.cut()
        async with SignalSink(backend=backends[0]) as sink, SignalSink(backend=backends[1]) as other:
            one = Worker(sink, rules_of())
            await settle()
            one.fail(3)
            sink.raise_signal("a")
            assert one.record.is_local
            bus.join()
            await settle()
            assert other.detect("a")
            assert not one.record.is_local
            assert not one.record.is_up


async def test_a_bus_carries_nothing_outside_of_its_block():
    bus = MemoryBus()
    async with SignalSink(backend=bus.backend()) as one, SignalSink(backend=bus.backend()):
        with pytest.raises(RuntimeError, match="async with MemoryBus"):
            one.raise_signal("a")


async def test_rungs_that_are_entered_together_wait_for_the_table_once():
    began_at, entered_at = anyio.current_time(), []

    async def enter(priority):
        async with PriorityProcessorAtom(priority, lambda item: item, sink):
            entered_at.append(anyio.current_time() - began_at)
            await anyio.sleep(5)

    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink, anyio.create_task_group() as tasks:
        for priority in (1, 2, 3):
            tasks.start_soon(enter, priority)
    assert entered_at == pytest.approx([0, 0, 0], abs=0.01)


async def test_a_sink_that_may_not_have_a_backend_leaves_it_to_the_one_that_has_it():
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as one:
        with pytest.raises(RuntimeError, match="belongs to one sink"):
            await SignalSink(backend=one.backend).__aenter__()
        with pytest.raises(RuntimeError, match="belongs to one sink"):
            SignalSink(backend=one.backend).__enter__()
        assert not one.is_degraded


async def test_who_left_hears_by_the_table_too_that_its_failures_count_for_nothing():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.fail(1)
        one.store.forget("pri1")
        two.fail(3)
        await settle()
        assert one.store.is_leaving
        # As a stream is trimmed: nothing of the trip is there to be read.
        bus._first += len(bus._log)
        bus._log.clear()
        bus.join()
        await settle()
        assert not one.store.is_leaving


async def test_a_sink_hears_others_on_its_new_loop_though_the_last_one_ended_over_its_mail():
    class EndedLoop:
        def call_soon_threadsafe(self, function):
            raise RuntimeError("closed")

    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as other:
        sink, heard = SignalSink(backend=bus.backend()), []
        sink.subscribe(lambda event: heard.append(event.signal))
        async with sink:
            sink._bus._loop = EndedLoop()
            other.raise_signal("first")
            await settle()
        async with sink:
            other.raise_signal("second")
            await settle()
        assert heard == ["second"]


async def test_what_is_wished_for_alone_holds_here_until_the_fleet_has_taken_it_whatever_it_did_meanwhile():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.sink.backend)
        await settle()
        one.store.isolate("pri1", one.now())
        two.fail(3)
        await settle()
        two.store.reset("pri1", two.now())
        await settle()
        bus.join()
        await settle()
        assert [change.after.state for change in one.changes] == ["isolated", "isolated"]
        assert two.record.state == "isolated"
        assert one.own_edges() == [("isolate", True), ("isolate", False)]  # the fleet was up again


async def test_a_sink_that_is_closed_again_soon_has_all_its_time_again():
    class Leaving(HealthWatcher):
        is_leaving = True

    took = []
    async with MemoryBus() as bus:
        sink, ladder = SignalSink(backend=bus.backend()), Leaving()
        for seconds in (1.0, 1.5):
            async with sink:
                sink.backend.watch(ladder)
                bus.call_later(seconds, partial(sink.backend.unwatch, ladder))
                began_at = anyio.current_time()
            took.append(anyio.current_time() - began_at)
    assert took == pytest.approx([1.0, 1.5], abs=0.01)
