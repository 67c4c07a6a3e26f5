"""What every bus promises for the health that a fleet shares: one edge, one prober, one truth."""

from __future__ import annotations

import contextlib

import anyio
import pytest

from ephemeral import HealthOptions
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore


class Worker:
    """One store with what it was told."""

    def __init__(self, backend, rules, loop):
        self.store = SharedHealthStore(backend)
        self.backend = backend
        self.loop = loop
        self.changes = []
        self.store.on_change = self.changes.append
        self.store.register("pri1", rules, loop.now())

    @property
    def record(self):
        return self.store.record("pri1")

    @property
    def edges(self):
        """Edges that are this worker's to tell of."""
        return [change.cause for change in self.changes if change.is_own and (change.went_down or change.came_up)]

    def fail(self, epoch=None):
        self.store.failed("pri1", self.record.epoch if epoch is None else epoch, self.loop.now())

    def succeed(self):
        self.store.succeeded("pri1", self.record.epoch, self.loop.now())

    async def acquire(self):
        return await self.store.acquire("pri1", self.loop.now())

    def finish(self, lease, *, is_good):
        self.store.finish(lease, self.loop.now(), is_good=is_good)


def rules_of(threshold=3, probe_interval=0.01, timeout=5.0, **options):
    return HealthRules.of(
        HealthOptions(**options), failure_threshold=threshold, probe_interval=probe_interval, timeout=timeout
    )


@pytest.fixture
def fleet(bus, until):
    @contextlib.asynccontextmanager
    async def make(count, rules):
        async with bus.sinks(count) as sinks:
            workers = [Worker(sink.backend, rules, current_loop()) for sink in sinks]
            # The table comes on the next turn of the loop; until then each would decide alone.
            await until(lambda: all(worker.store._is_alone is False for worker in workers))
            yield workers

    return make


async def down(workers, until, failures=3):
    for _ in range(failures):
        workers[0].fail()
    await until(lambda: all(not worker.record.is_up for worker in workers))


async def test_failures_of_all_workers_add_up_and_one_of_them_tells(fleet, until):
    async with fleet(3, rules_of(threshold=3)) as workers:
        for worker in workers:
            worker.fail()
        await until(lambda: all(not worker.record.is_up for worker in workers))
        assert sorted(edge for worker in workers for edge in worker.edges) == ["failures"]
        assert {worker.record.epoch for worker in workers} == {workers[0].record.epoch}
        assert {worker.record.failures for worker in workers} == {3}
        assert not workers[0].record.is_local


async def test_below_the_threshold_all_stay_up_and_know_the_count(fleet, until):
    async with fleet(2, rules_of(threshold=3)) as (one, two):
        one.fail()
        two.fail()
        await until(lambda: one.store.failures("pri1", one.loop.now()) == 2)
        assert one.record.is_up
        assert one.changes == two.changes == []


async def test_a_success_anywhere_ends_the_streak(fleet, until):
    async with fleet(2, rules_of(threshold=2)) as (one, two):
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        two.succeed()
        await until(lambda: one.store.failures("pri1", one.loop.now()) == 0)
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        assert one.record.is_up
        two.fail()
        await until(lambda: not one.record.is_up)


async def test_one_too_many_is_so_though_a_success_follows_at_once(fleet, until):
    async with fleet(2, rules_of(threshold=2)) as (one, two):
        for _ in range(5):
            one.fail()
            one.fail()
            one.succeed()
            # Each is dated by how long its own call took: a slow first one may come out as the later.
            await anyio.sleep(0.1)
            if not one.record.is_up:
                break
        await until(lambda: not one.record.is_up and not two.record.is_up)


async def test_streaks_that_are_told_together_are_not_one(fleet, until):
    async with fleet(2, rules_of(threshold=3)) as (one, two):
        for _ in range(3):
            one.fail()
            one.fail()
            one.succeed()
        # What fails at the very instant of a success came before it, and a bus tells instants by the millisecond, each
        # worker's age and the server's clock rounded on their own.
        await anyio.sleep(0.005)
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        assert one.record.is_up
        assert two.record.is_up


async def test_windowed_heeds_no_success(fleet, until):
    async with fleet(2, rules_of(threshold=2, policy="windowed")) as (one, two):
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        two.succeed()
        two.fail()
        await until(lambda: not one.record.is_up)


async def test_rate_weighs_the_successes_of_all(fleet, until):
    async with fleet(2, rules_of(policy="rate", failure_rate=0.5, minimum_calls=4)) as (one, two):
        two.succeed()
        two.succeed()
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        assert one.record.is_up

        def fail_again():
            # Successes are told with the next call, not at once; a failure that comes before them decides without them.
            one.fail()
            return not two.record.is_up

        await until(fail_again)
        assert two.record.failures >= 2


async def test_a_failure_of_an_old_epoch_does_not_count(fleet, until):
    async with fleet(2, rules_of(threshold=1)) as (one, two):
        before = one.record.epoch
        two.fail()
        await until(lambda: not one.record.is_up)
        two.store.reset("pri1", two.loop.now())
        await until(lambda: one.record.is_up)
        one.fail(epoch=before)
        two.fail(epoch=before)
        one.store.isolate("pri1", one.loop.now())  # news travel in order: what came of the failures came before this
        await until(lambda: two.record.state == "isolated")
        assert [change.cause for change in one.changes].count("failures") == 1


async def test_of_all_who_race_for_the_lease_one_gets_it(fleet, until):
    async with fleet(4, rules_of(probe_interval=0.001)) as workers:
        await down(workers, until)
        await until(lambda: workers[0].record.probe_due_at <= workers[0].loop.now())
        leases = []

        async def race(worker):
            leases.append(await worker.acquire())

        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(race, worker)
        assert [lease is not None for lease in leases].count(True) == 1
        await until(lambda: all(worker.record.lease is not None for worker in workers))
        told = [change for worker in workers for change in worker.changes if change.cause == "probe_started"]
        assert [change.is_own for change in told].count(True) == 1
        assert all(worker.record.state_at(worker.loop.now()) == "probing" for worker in workers)


async def acquired(worker, until):
    await until(lambda: worker.record.probe_due_at <= worker.loop.now())
    lease = await worker.acquire()
    assert lease is not None
    return lease


async def test_one_good_probe_brings_it_back_everywhere(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        await down([one, two], until)
        two.finish(await acquired(two, until), is_good=True)
        await until(lambda: one.record.is_up and two.record.is_up)
        assert (one.edges, two.edges) == (["failures"], ["probe_passed"])
        one.fail()
        one.fail()
        assert one.record.is_up


async def test_probes_in_a_row_may_come_from_different_workers(fleet, until):
    async with fleet(2, rules_of(recovery_probes=2)) as (one, two):
        await down([one, two], until)
        one.finish(await acquired(one, until), is_good=True)
        await until(lambda: two.record.good_probes == 1)
        two.finish(await acquired(two, until), is_good=True)
        await until(lambda: one.record.is_up)


async def test_a_bad_probe_puts_the_next_one_off_for_all(fleet, until):
    async with fleet(2, rules_of(probe_interval=0.05, probe_backoff=100.0)) as (one, two):
        await down([one, two], until)
        one.finish(await acquired(one, until), is_good=False)
        await until(lambda: two.record.failed_probes == 1 and two.record.lease is None)
        assert two.record.probe_due_at - two.loop.now() == pytest.approx(5.0, abs=0.5)
        assert await two.acquire() is None


async def test_a_lease_that_was_given_back_is_anybodys(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        await down([one, two], until)
        lease = await acquired(one, until)
        await until(lambda: two.record.lease is not None)
        one.store.give_back(lease)
        await until(lambda: two.record.lease is None)
        await acquired(two, until)
        one.finish(lease, is_good=True)  # an old fence: too late
        two.store.isolate("pri1", two.loop.now())
        await until(lambda: one.record.state == "isolated")
        assert not one.edges[1:]


async def test_a_prober_that_dies_holds_up_nobody(fleet, until):
    async with fleet(2, rules_of(timeout=None, slow_after=0.001)) as (one, two):
        await down([one, two], until)
        lease = await acquired(one, until)
        await until(lambda: two.record.lease is not None)
        assert await two.acquire() is None
        assert lease.until - one.loop.now() == pytest.approx(2.0, abs=0.3)
        two.finish(await acquired(two, until), is_good=True)
        await until(lambda: one.record.is_up)


async def test_one_sick_worker_routes_away_alone_and_probes_for_itself(fleet, until):
    async with fleet(2, rules_of(threshold=2, quorum=2)) as (one, two):
        one.fail()
        one.fail()
        assert one.record.is_local
        assert not one.record.is_up
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 2)
        assert two.record.is_up
        lease = await acquired(one, until)
        one.finish(lease, is_good=True)
        assert one.record.is_up
        assert one.edges == ["failures", "probe_passed"]
        assert two.changes == []


async def test_a_quorum_of_workers_condemns_for_all(fleet, until):
    async with fleet(3, rules_of(threshold=2, quorum=2)) as workers:
        workers[0].fail()
        workers[1].fail()
        await until(lambda: all(not worker.record.is_up for worker in workers))
        assert not any(worker.record.is_local for worker in workers)


async def test_isolating_holds_here_at_once_and_for_all_soon_and_is_told_once(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        one.store.isolate("pri1", one.loop.now())
        assert one.record.state == "isolated"
        await until(lambda: two.record.state == "isolated" and one.edges)
        assert (one.edges, two.edges) == (["isolate"], [])
        assert await two.acquire() is None
        two.store.reset("pri1", two.loop.now())
        assert two.record.is_up
        await until(lambda: one.record.is_up and two.edges)
        assert (one.edges, two.edges) == (["isolate"], ["reset"])


async def test_two_who_isolate_at_once_tell_once(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        one.store.isolate("pri1", one.loop.now())
        two.store.isolate("pri1", two.loop.now())
        await until(lambda: one.edges or two.edges)
        await until(lambda: (one.record.epoch, one.record.by) == (two.record.epoch, two.record.by))
        assert sorted([*one.edges, *two.edges]) == ["isolate"]
        assert one.record.by == two.record.by


async def test_resetting_a_healthy_one_forgets_its_failures_everywhere(fleet, until):
    async with fleet(2, rules_of(threshold=2)) as (one, two):
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        two.store.reset("pri1", two.loop.now())
        await until(lambda: one.store.failures("pri1", one.loop.now()) == 0)
        one.fail()
        await until(lambda: two.store.failures("pri1", two.loop.now()) == 1)
        assert one.record.is_up
        assert one.edges == two.edges == []


async def test_the_last_of_several_decisions_by_hand_holds(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        for _ in range(3):
            one.store.isolate("pri1", one.loop.now())
            one.store.reset("pri1", one.loop.now())
        await until(lambda: one.record.is_up and two.record.is_up and one.record.epoch == two.record.epoch > 0)
        for _ in range(3):
            two.store.reset("pri1", two.loop.now())
            two.store.isolate("pri1", two.loop.now())
        await until(lambda: one.record.state == two.record.state == "isolated" and one.record.by == two.record.by)
        edges = one.edges + two.edges
        assert edges.count("isolate") - edges.count("reset") == 1


async def test_who_joins_late_knows_what_holds(bus, fleet, until):
    async with fleet(1, rules_of()) as (one,):
        await down([one], until)
        async with fleet(1, rules_of()) as (late,):
            await until(lambda: not late.record.is_up)
            assert late.record.epoch == one.record.epoch
            assert late.edges == []


async def test_what_was_decided_before_the_table_was_known_holds_for_all(bus, until):
    async with bus.sinks(2) as sinks:
        one, two = [Worker(sink.backend, rules_of(), current_loop()) for sink in sinks]
        one.store.isolate("pri1", one.loop.now())
        assert one.record.state == "isolated"
        await until(lambda: two.record.state == "isolated" and one.edges)
        assert one.edges == ["isolate"]


async def test_a_processor_that_was_forgotten_hears_nothing(fleet, until):
    async with fleet(2, rules_of()) as (one, two):
        two.store.forget("pri1")
        one.store.isolate("pri1", one.loop.now())
        await until(lambda: one.edges)
        two.store.failed("pri1", 0, 0.0)
        assert two.changes == []
        with pytest.raises(KeyError):
            two.store.record("pri1")
        with pytest.raises(ValueError, match="registered already"):
            one.store.register("pri1", rules_of(), 0.0)
