"""What exploring every order of events has found in the shared health (docs/shared-health.md), each as a story."""

from __future__ import annotations

import contextlib

import anyio

from ephemeral import HealthOptions, SignalSink
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral.testing import MemoryBus

PERIOD = 1.0


class Worker:
    def __init__(self, sink, rules):
        self.backend = sink.backend
        self.now = current_loop().now
        self.store = SharedHealthStore(sink.backend)
        self.changes = []
        self.store.on_change = self.changes.append
        self.store.register("pri1", rules, self.now())

    @property
    def record(self):
        return self.store.record("pri1")

    def edges(self, *, is_local=False):
        own = [change for change in self.changes if change.is_own and (change.went_down or change.came_up)]
        return [change.cause for change in own if (change.after.is_local or change.before.is_local) == is_local]

    def fail(self, times=1):
        for _ in range(times):
            self.store.failed("pri1", self.record.epoch, self.now())

    async def acquire(self):
        return await self.store.acquire("pri1", self.now())

    def finish(self, lease, *, is_good=True):
        self.store.finish(lease, self.now(), is_good=is_good)


@contextlib.asynccontextmanager
async def fleet(count, *, threshold=3, **options):
    rules = HealthRules.of(
        HealthOptions(**options), failure_threshold=threshold, probe_interval=PERIOD, timeout=5.0, failure_window=100.0
    )
    async with MemoryBus() as bus, contextlib.AsyncExitStack() as stack:
        sinks = [
            await stack.enter_async_context(SignalSink(backend=bus.backend(), clock=current_loop().now))
            for _ in range(count)
        ]
        workers = [Worker(sink, rules) for sink in sinks]
        await settle()
        yield bus, workers


async def settle():
    """Let everything arrive; no timer of the rules is that short."""
    await anyio.sleep(0.01)


def lose_and_return(bus, *workers):
    """Have the bus lose its data, and *workers* come back to it in this order."""
    bus.cut()
    bus.lose_data()
    for worker in workers:
        bus.join(worker.backend)


async def test_who_comes_back_first_and_knows_less_does_not_undo_a_recovery():
    async with fleet(2) as (bus, (one, two)):
        one.fail(3)
        await anyio.sleep(PERIOD + 0.1)
        lease = await one.acquire()
        bus.cut(two.backend)
        one.finish(lease)
        await settle()
        assert one.record.is_up
        epoch = one.record.epoch
        await settle()
        lose_and_return(bus, two)
        await settle()
        assert not two.record.is_up
        bus.join(one.backend)
        await settle()
        assert one.record.is_up
        assert two.record.is_up
        assert one.record.epoch == two.record.epoch == epoch


async def test_a_verdict_counts_though_the_lease_was_lost_with_the_data():
    async with fleet(2) as (bus, (one, two)):
        one.fail(3)
        await settle()
        bus.cut(two.backend)
        await anyio.sleep(PERIOD + 0.1)
        lease = await one.acquire()
        await settle()
        bus.cut(one.backend)
        await settle()
        one.finish(lease)
        lose_and_return(bus, two, one)
        await settle()
        assert one.record.is_up
        assert two.record.is_up


async def test_a_lease_that_a_worker_gave_itself_is_not_the_fleets_though_the_fence_is_the_same():
    async with fleet(2) as (bus, (one, two)):
        one.fail(3)
        await settle()
        bus.cut(one.backend)
        await anyio.sleep(PERIOD + 0.1)
        of_its_own, of_the_fleet = await one.acquire(), await two.acquire()
        assert of_its_own.fence == of_the_fleet.fence
        bus.join()
        await settle()
        one.finish(of_its_own)
        await settle()
        assert not one.record.is_up
        two.finish(of_the_fleet)
        await settle()
        assert one.record.is_up


async def test_what_failed_before_a_reset_does_not_count_however_late_it_is_told():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.backend)
        one.fail(2)
        two.store.reset("pri1", two.now())
        await settle()
        bus.join()
        await settle()
        two.fail()
        await settle()
        assert one.record.is_up
        assert two.record.is_up
        two.fail(2)
        await settle()
        assert not one.record.is_up


async def test_an_earlier_decision_by_hand_that_was_refused_is_not_taken_up_after_a_later_one():
    async with fleet(2) as (bus, (one, two)):
        bus.delay = 0.1
        two.store.reset("pri1", two.now())  # the table has moved on before one hears of it
        one.store.isolate("pri1", one.now())
        one.store.reset("pri1", one.now())
        await anyio.sleep(2.0)
        assert one.record.is_up
        assert two.record.is_up


async def test_a_decision_by_hand_takes_the_place_of_one_that_waits_for_the_bus():
    async with fleet(2) as (bus, (one, two)):
        bus.delay = 0.1
        one.store.isolate("pri1", one.now())
        bus.cut(one.backend)
        await anyio.sleep(0.5)
        one.store.reset("pri1", one.now())
        bus.join()
        await anyio.sleep(1.0)
        assert one.record.is_up
        assert two.record.is_up


async def test_what_was_decided_alone_waits_for_the_fleet_though_the_outage_is_told_again():
    async with fleet(2) as (bus, (one, two)):
        bus.cut(one.backend)
        await settle()
        one.store.isolate("pri1", one.now())
        one.store.register("pri2", HealthRules.of(HealthOptions()), one.now())
        await settle()
        bus.join()
        await settle()
        assert one.record.state == two.record.state == "isolated"


async def test_what_is_wished_for_alone_reaches_the_fleet_though_it_seems_true_here():
    async with fleet(2) as (bus, (one, two)):
        one.store.isolate("pri1", one.now())
        await settle()
        bus.cut(one.backend)
        two.store.reset("pri1", two.now())
        await settle()
        one.store.isolate("pri1", one.now())
        bus.join()
        await settle()
        assert one.record.state == two.record.state == "isolated"


async def test_the_fleets_edge_is_told_though_who_tipped_the_scales_was_down_alone_before():
    async with fleet(2, threshold=2, quorum=2) as (_, (one, two)):
        two.fail()
        one.fail(2)  # the first takes it down for all, which is heard only after the second
        assert one.record.is_local
        await settle()
        assert not one.record.is_local
        assert not two.record.is_up
        assert one.edges(is_local=True) == ["failures"]
        assert one.edges() + two.edges() == ["failures"]


async def test_no_lease_is_asked_for_while_a_reset_that_the_fleet_has_yet_to_take_is_under_way():
    async with fleet(1) as (bus, (one,)):
        bus.delay = 0.1
        bus.cut()
        await settle()
        one.store.isolate("pri1", one.now())
        one.store.reset("pri1", one.now())
        one.fail(3)
        assert one.record.is_local
        await anyio.sleep(PERIOD + 0.1)
        bus.join()
        await settle()
        assert await one.acquire() is None
        await anyio.sleep(1.0)
        assert one.record.is_up


async def test_a_row_that_a_laggard_puts_back_is_overruled_by_who_knows_better():
    async with fleet(3) as (bus, (one, two, three)):
        one.fail(3)
        await settle()
        bus.cut(two.backend)
        await anyio.sleep(PERIOD + 0.1)
        lease = await one.acquire()
        bus.lose_data()  # and neither one nor three is cut off
        bus.join(two.backend)
        await settle()
        assert two.record.lease is not None
        assert three.record.lease is not None
        one.finish(lease)
        await settle()
        assert one.record.is_up
        assert two.record.is_up
        assert three.record.is_up
