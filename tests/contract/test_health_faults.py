"""Health when workers, their services and their bus fail together: one story in the whole fleet, over every bus."""

from __future__ import annotations

import contextlib
from collections import Counter

import anyio
import pytest

from ephemeral import HealthOptions, NoHealthyProcessorError, PriorityProcessorAtom, SignalSink
from ephemeral.testing import MemoryBus


class Service:
    """What the atoms of all workers call. Each worker has a link of its own to it, which may be cut."""

    def __init__(self):
        self.is_down = False
        self.done = []
        self.probed_at = []
        self.probing = 0
        self.most_probing = 0
        self.gate = None

    def link(self):
        return Link(self)


class Link:
    def __init__(self, service):
        self.service = service
        self.is_cut = False
        self.asked = 0
        self.probes = 0

    def __bool__(self):
        return not (self.is_cut or self.service.is_down)

    async def __call__(self, item):
        self.asked += 1
        if not self:
            raise ConnectionError(item)
        self.service.done.append(item)

    async def probe(self):
        service = self.service
        self.probes += 1
        service.probed_at.append(anyio.current_time())
        service.probing += 1
        service.most_probing = max(service.most_probing, service.probing)
        try:
            if service.gate is not None:
                await service.gate.wait()
            return bool(self)
        finally:
            service.probing -= 1


class Worker:
    """One worker of the fleet: its sink, its two rungs and its links to their services."""

    def __init__(self, sink, atoms, primary, backup):
        self.sink = sink
        self.first, self.second = atoms
        self.primary = primary
        self.backup = backup

    @property
    def health(self):
        return self.first.get_health()

    @property
    def row(self):
        """The fleet's row of the first rung, as this worker knows it."""
        return self.first._ladder.health._entries["pri1"].row

    @property
    def knows_the_table(self):
        return self.first._ladder.health._is_alone is False

    async def fail(self, times=3):
        for number in range(times):
            await self.first.enqueue(f"{self.sink.origin}-{number}")

    def told(self, prefix=("failover.", "probe.")):
        """What this worker itself has told of, in order."""
        own = [event for event in self.sink.sense() if event.origin == self.sink.origin]
        return [event.signal for event in own if event.signal.startswith(prefix)]


@contextlib.asynccontextmanager
async def working(sink, primary, backup, **options):
    options = {"failure_threshold": 3, "probe_interval": 0.05, "reroute_failed": True, **options}
    one, two = primary.link(), backup.link()
    async with (
        PriorityProcessorAtom(1, one, sink, probe=one.probe, **options) as first,
        PriorityProcessorAtom(2, two, sink, probe=two.probe, **options) as second,
    ):
        yield Worker(sink, (first, second), one, two)


@contextlib.asynccontextmanager
async def fleet(bus, until, count, *services, **options):
    """Open so many workers that know the table: what fails before a worker knows it counts for nothing."""
    primary, backup = services or (Service(), Service())
    async with bus.sinks(count) as sinks, contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(working(sink, primary, backup, **options)) for sink in sinks]
        await until(lambda: all(worker.knows_the_table for worker in workers))
        yield workers


async def told_by(workers):
    """Flush, and return how often each edge and probe was told in the whole fleet."""
    for worker in workers:
        assert await worker.sink.flush(5)
    names = ("failover.requested", "failover.restored", "failover.exhausted")
    names += ("probe.testing", "probe.success", "probe.failed")
    counts = {name: await workers[0].sink.shared_count(name) for name in names}
    return {name: count for name, count in counts.items() if count}


async def test_one_sick_node_trips_probes_and_recovers_for_itself_alone(bus, until, caplog):
    caplog.set_level("INFO", "ephemeral")
    async with fleet(bus, until, 3, health=HealthOptions(quorum=2)) as (sick, *others):
        sick.primary.is_cut = True
        await sick.fail()
        await until(lambda: not sick.first.is_healthy and len(sick.backup.service.done) == 3)
        assert sick.health.is_local
        assert sick.first._ladder.health.record("pri1").failures == 3
        (edge,) = sick.sink.sense("failover.requested*")
        assert (edge.signal, edge.payload) == ("failover.requested:pri1→pri2", {"route": "pri2", "local": True})
        await until(lambda: sick.primary.probes >= 3)
        for other in others:
            assert (other.health.state, other.health.is_local, other.row.version) == ("up", False, 0)
            await other.first.enqueue("fine")
        await until(lambda: sick.primary.service.done.count("fine") == 2)
        assert all(other.primary.probes == 0 for other in others)
        sick.primary.is_cut = False
        await until(lambda: sick.first.is_healthy)
        await sick.first.enqueue("back")
        await until(lambda: "back" in sick.primary.service.done)
        assert sick.told("failover.") == ["failover.requested:pri1→pri2", "failover.restored:pri1"]
        assert sick.told("probe.")[-2:] == ["probe.testing:pri1", "probe.success:pri1"]
        assert [other.told() for other in others] == [[], []]
        assert all(worker.row.version == 0 for worker in (sick, *others))
        assert [text for text in caplog.messages if text.startswith("pri1 ")] == [
            "pri1 is down after 3 failures seen here; work goes to pri2",
            "pri1 is up again",
        ]


async def test_two_sick_nodes_condemn_for_all_and_a_third_brings_it_back(bus, until):
    options = {"health": HealthOptions(quorum=2), "probe_interval": 0.5}
    async with fleet(bus, until, 3, **options) as (one, two, healthy):
        one.primary.is_cut = two.primary.is_cut = True
        await one.fail()
        await until(lambda: one.health.is_local)
        assert healthy.first.is_healthy
        await two.fail()
        await until(lambda: not healthy.first.is_healthy)
        await until(lambda: not any(worker.health.is_local for worker in (one, two, healthy)))
        assert len({worker.health.epoch for worker in (one, two, healthy)}) == 1
        one.primary.is_cut = two.primary.is_cut = False
        await until(lambda: all(worker.first.is_healthy for worker in (one, two, healthy)))
        for worker in (one, two, healthy):
            assert await worker.sink.flush(5)
        await until(lambda: healthy.sink.detect("failover.restored:pri1"))
        edges = [event.payload["local"] for event in healthy.sink.sense("failover.requested*")]
        # The fleet's edge is one, whoever had gone before it alone; the recovery is of all.
        assert edges.count(False) == 1
        assert 1 <= edges.count(True) <= 2
        assert len(healthy.sink.sense("failover.restored*")) == 1
        assert len(healthy.sink.sense("probe.success*")) == 1


async def test_different_thresholds_each_judge_by_their_own_and_do_not_take_turns(bus, until):
    primary, backup = Service(), Service()
    options = {"probe_interval": 60.0}
    async with (
        bus.sinks(2) as (here, there),
        working(here, primary, backup, failure_threshold=2, **options) as strict,
        working(there, primary, backup, failure_threshold=5, **options) as lenient,
    ):
        await until(lambda: strict.knows_the_table and lenient.knows_the_table)
        primary.is_down = True
        await lenient.fail(4)
        await until(lambda: strict.first.consecutive_failures == 4)
        assert strict.first.is_healthy
        assert lenient.first.is_healthy
        await strict.fail(1)  # one more is enough for the strict one, and so for all
        await until(lambda: not lenient.first.is_healthy and not strict.first.is_healthy)
        assert lenient.health.failures == 5
        primary.is_down = False
        lenient.first.reset_health()
        await until(lambda: strict.first.is_healthy and lenient.first.is_healthy)
        # What tripped it is forgotten: nothing goes back and forth.
        primary.is_down = True
        await strict.fail(1)
        await until(lambda: lenient.first.consecutive_failures == 1)
        assert strict.first.is_healthy
        primary.is_down = False
        await lenient.first.enqueue("w")
        await until(lambda: strict.first.consecutive_failures == 0)
        assert await told_by([strict, lenient]) == {"failover.requested": 1, "failover.restored": 1}


async def test_with_every_rung_out_all_wait_are_told_once_and_lose_nothing(bus, until):
    primary, backup = Service(), Service()
    async with fleet(bus, until, 2, primary, backup, failure_threshold=1, probe_interval=0.2) as workers:
        one, two = workers
        primary.is_down = backup.is_down = True
        await one.first.enqueue("a")
        await until(lambda: not any(w.first.is_healthy or w.second.is_healthy for w in workers))
        items = [f"{number}" for number in range(20)]
        for number, item in enumerate(items):
            await workers[number % 2].first.enqueue(item)
        assert not await one.first.drain(0)
        assert not await two.first.drain(0.05)
        with pytest.raises(NoHealthyProcessorError) as caught:
            await two.first.call("call")
        probes, retry_at = len(primary.probed_at), caught.value.retry_at
        assert retry_at is not None
        assert -0.05 < retry_at - two.sink.now() <= 0.25
        await anyio.sleep(max(0.0, retry_at - two.sink.now()))
        await until(lambda: len(primary.probed_at) > probes or len(backup.probed_at) > probes)
        primary.is_down = backup.is_down = False
        assert await one.first.drain(5)
        assert await two.first.drain(5)
        await until(lambda: all(w.first.is_healthy and w.second.is_healthy for w in workers))
        assert Counter(primary.done + backup.done) == Counter(["a", *items])
        assert primary.most_probing == backup.most_probing == 1
        told = await told_by(workers)
        assert told["failover.requested"] == told["failover.restored"] == 2
        assert told["failover.exhausted"] == 1
        assert told["probe.success"] == 2
        assert told["probe.testing"] == told["probe.failed"] + 2 == len(primary.probed_at) + len(backup.probed_at)


@pytest.mark.parametrize("decision", ["isolate", "reset_health"])
@pytest.mark.parametrize("is_good", [True, False])
async def test_a_decision_by_hand_during_a_probe_holds_whatever_the_probe_says(bus, until, decision, is_good):
    primary, backup = Service(), Service()
    async with fleet(bus, until, 2, primary, backup) as workers:
        prober, other = workers
        primary.gate = anyio.Event()
        primary.is_down = True
        await prober.fail()
        await until(lambda: primary.probing == 1)
        if other.primary.probes:
            prober, other = other, prober
        await until(lambda: other.health.state == "probing")
        getattr(other.first, decision)()
        state = "isolated" if decision == "isolate" else "up"
        await until(lambda: prober.health.state == state)
        primary.is_down = not is_good
        primary.gate.set()
        primary.gate = None
        await until(lambda: primary.probing == 0 and prober.first._rung.asker is None)
        other.first.reset_health()
        other.first.isolate()  # news travel in order: what came of the verdict came before this
        await until(lambda: prober.health.state == other.health.state == "isolated")
        told = await told_by(workers)
        assert told["probe.testing"] == 1
        assert "probe.success" not in told
        assert "probe.failed" not in told


async def test_who_starts_while_a_rung_is_isolated_knows_it_though_nobody_was_there_meanwhile(bus, until):
    primary, backup = Service(), Service()
    async with fleet(bus, until, 1, primary, backup) as (before,):
        before.first.isolate()
        await until(lambda: before.told() == ["failover.requested:pri1→pri2"])
    async with fleet(bus, until, 1, primary, backup) as (after,):
        assert (after.health.state, after.health.by) == ("isolated", before.sink.origin)
        await after.first.enqueue("w")
        await until(lambda: backup.done == ["w"])
        assert after.told() == []
        assert primary.probed_at == []
        after.first.reset_health()
        await until(lambda: after.told() == ["failover.restored:pri1"])


async def test_a_recovery_that_its_prober_leaves_on_is_told(bus, until):
    primary, backup = Service(), Service()
    async with bus.sinks(1) as (there,):
        for round_number in range(10):
            primary.is_down = True
            async with fleet(bus, until, 1, primary, backup) as (worker,):
                await worker.fail()
                await until(lambda worker=worker: not worker.first.is_healthy)
                primary.is_down = False
                before = len(primary.probed_at)
                await until(lambda before=before: len(primary.probed_at) > before)
                # Leaves with the probe's answer, and its sink with it.
            await until(lambda number=round_number: len(there.sense("failover.restored:pri1")) == number + 1)
            assert len(there.sense("failover.requested:*")) == round_number + 1
            assert len(there.sense("probe.success:pri1")) == round_number + 1


async def test_a_trip_that_its_worker_leaves_on_is_told(bus, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    async with fleet(bus, until, 1, primary, backup, probe_interval=60.0) as (other,):
        for round_number in range(10):
            async with fleet(bus, until, 1, primary, backup, probe_interval=60.0) as (worker,):
                await worker.fail()
            await until(lambda number=round_number: len(other.sink.sense("failover.requested:*")) == number + 1)
            other.first.reset_health()
            # Told once the fleet has it, and not only this worker: the next one must find the rung up.
            await until(lambda number=round_number: len(other.sink.sense("failover.restored:*")) == number + 1)


# What takes a bus away from single workers needs one that can: in memory, in virtual time. Real ones: tests/faults.


class Memory:
    """A `MemoryBus` as the tests above know a bus."""

    def __init__(self, bus):
        self.bus = bus

    @contextlib.asynccontextmanager
    async def sinks(self, count):
        async with contextlib.AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(SignalSink(20_000, backend=self.bus.backend(), max_age=100_000))
                for _ in range(count)
            ]


@pytest.fixture
async def memory():
    async with MemoryBus() as bus:
        yield bus


async def test_a_sick_node_whose_bus_goes_too_stays_out_alone_and_returns_alone(memory, until):
    async with fleet(Memory(memory), until, 3, health=HealthOptions(quorum=2)) as (sick, *others):
        sick.primary.is_cut = True
        memory.cut(sick.sink.backend)
        await sick.fail()
        await until(lambda: sick.health.is_local)
        assert all(other.first.is_healthy for other in others)
        memory.join(sick.sink.backend)
        await until(lambda: others[0].first.consecutive_failures == 3)  # they are told, with their age
        probes = sick.primary.probes
        await until(lambda: sick.primary.probes > probes)  # and it still probes for itself
        assert sick.health.is_local
        assert all(other.first.is_healthy and other.row.version == 0 for other in others)
        memory.cut(sick.sink.backend)
        sick.primary.is_cut = False
        await until(lambda: sick.first.is_healthy)
        memory.join(sick.sink.backend)
        await sick.first.enqueue("back")
        await until(lambda: sick.primary.service.done == ["back"])
        assert sick.told("failover.") == ["failover.requested:pri1→pri2", "failover.restored:pri1"]
        assert (await told_by([sick, *others]))["failover.requested"] == 1


async def test_a_flapping_primary_is_probed_by_one_at_a_time_further_and_further_apart(memory, until):
    primary, backup = Service(), Service()
    health = HealthOptions(recovery_probes=3, probe_backoff=2, max_probe_interval=5.0)
    options = {"failure_threshold": 1, "probe_interval": 1.0, "health": health}
    async with fleet(Memory(memory), until, 4, primary, backup, **options) as workers:
        for round_number in range(2):
            primary.is_down = True
            primary.probed_at.clear()
            tripped_at = anyio.current_time()
            await workers[round_number].fail(1)
            await until(lambda: not workers[3].first.is_healthy)
            await anyio.sleep(17.5)  # five bad ones
            primary.is_down = False
            await anyio.sleep(5.5)  # two good ones, and the next one bad: it flaps
            primary.is_down = True
            await anyio.sleep(1.0)
            primary.is_down = False
            await anyio.sleep(4.0)
            # Doubled from 1 s up to 5; 1 s after a good one; doubled from the start again after the bad one between.
            gaps = [1, 2, 4, 5, 5, 5, 1, 1, 2, 1, 1]
            expected = [tripped_at + sum(gaps[: number + 1]) for number in range(len(gaps))]
            assert primary.probed_at == pytest.approx(expected, abs=0.05)
            assert all(worker.first.is_healthy for worker in workers)
        assert primary.most_probing == 1
        assert await told_by(workers) == {
            "failover.requested": 2,
            "failover.restored": 2,
            "probe.testing": 22,
            "probe.failed": 12,
            "probe.success": 10,
        }


@pytest.mark.parametrize("last", ["isolate", "reset_health"])
async def test_of_decisions_that_contradict_that_of_who_comes_back_last_holds(memory, until, last):
    async with fleet(Memory(memory), until, 3, probe_interval=60.0) as workers:
        isolates, resets, watches = workers
        watches.primary.service.is_down = True
        await watches.fail()
        await until(lambda: not any(worker.first.is_healthy for worker in workers))
        memory.cut(isolates.sink.backend, resets.sink.backend)
        isolates.first.isolate()
        resets.first.reset_health()
        assert (isolates.health.state, resets.health.state, watches.health.state) == ("isolated", "up", "down")
        order = (resets, isolates) if last == "isolate" else (isolates, resets)
        for worker in order:
            memory.join(worker.sink.backend)
            await until(lambda worker=worker: worker.health.state == watches.health.state)
        state = "isolated" if last == "isolate" else "up"
        assert [worker.health.state for worker in workers] == [state] * 3
        assert len({worker.health.epoch for worker in workers}) == 1
        assert {worker.health.by for worker in workers} == {order[1].sink.origin}
        told = await told_by(workers)
        # Once for itself while it was alone, and once more for the fleet where somebody else had come first.
        assert told["failover.restored"] == (1 if last == "isolate" else 2)
        assert told["failover.requested"] == (2 if last == "isolate" else 1)


async def test_while_the_fleet_has_yet_to_be_heard_an_item_does_not_use_up_its_attempts(memory, until):
    """Each rung has failed often enough to be out, and the bus takes half a second to say so."""
    primary, backup = Service(), Service()
    options = {"failure_threshold": 1, "max_attempts": 5, "probe_interval": 1.0}
    async with fleet(Memory(memory), until, 1, primary, backup, **options) as (worker,):
        memory.delay = 0.5
        primary.is_down = backup.is_down = True
        await worker.fail(3)
        await until(lambda: not (worker.first.is_healthy or worker.second.is_healthy))
        assert worker.first.statistics().pending_count == 3
        assert worker.primary.asked + worker.backup.asked < 1000  # nor does it run without a pause
        primary.is_down = backup.is_down = False
        assert await worker.first.drain(10)
        assert worker.first.statistics().total_completed == 3


async def test_a_lone_decision_while_the_bus_is_away_is_taken_over_and_told_once(memory, until):
    async with fleet(Memory(memory), until, 2) as (one, two):
        memory.cut(one.sink.backend)
        one.first.isolate()
        assert (one.health.state, two.health.state) == ("isolated", "up")
        memory.join(one.sink.backend)
        await until(lambda: two.health.state == "isolated")
        memory.cut(two.sink.backend)
        two.first.reset_health()
        memory.join(two.sink.backend)
        await until(lambda: one.first.is_healthy)
        assert await told_by([one, two]) == {"failover.requested": 1, "failover.restored": 1}


async def test_a_lease_whose_grant_was_never_answered_ends_by_time(memory, until):
    """The table has it, and nobody knows: neither its owner nor anybody else probes before it is over."""
    primary = Service()
    options = {"probe_interval": 1.0, "timeout": 3.0}  # a lease of 5 s
    async with fleet(Memory(memory), until, 2, primary, Service(), **options) as workers:
        one, two = workers
        primary.is_down = True
        await one.fail()
        await until(lambda: not two.first.is_healthy)
        tripped_at = anyio.current_time()
        lost = []

        def loses_the_answer(backend, swap):
            def lose(offer):
                future = swap(offer)
                if not lost:
                    lost.append(offer.record.lease.owner)
                    memory.cut(backend)
                return future

            return lose

        for worker in workers:
            worker.sink.backend.swap = loses_the_answer(worker.sink.backend, worker.sink.backend.swap)
        await until(lambda: lost)
        memory.join()
        await until(lambda: one.health.state == two.health.state == "probing")
        await until(lambda: primary.probed_at, steps=8000)
        assert primary.probed_at[0] == pytest.approx(tripped_at + 1.0 + 5.0, abs=0.2)
        assert primary.most_probing == 1


async def test_an_edge_is_told_though_the_bus_goes_away_as_its_group_ends(memory, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    async with Memory(memory).sinks(2) as (here, there), working(there, primary, backup, probe_interval=60.0) as other:
        await until(lambda: other.knows_the_table)
        async with working(here, primary, backup, probe_interval=60.0) as ended:
            await until(lambda: ended.knows_the_table)
            await other.fail(1)
            await until(lambda: ended.first.consecutive_failures == 1)
            memory.cut(here.backend)
            await ended.fail(2)
            await until(lambda: len(backup.done) == 3)
            assert ended.first.is_healthy  # two are not enough for itself
        memory.join(here.backend)
        await until(lambda: not other.first.is_healthy)
        await until(lambda: there.detect("failover.requested:pri1→pri2"))
        assert await here.shared_count("failover.requested") == 1


async def test_a_group_that_ends_with_failures_still_counted_keeps_nobody_waiting(memory, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    async with fleet(Memory(memory), until, 1, primary, backup) as (worker,):
        await worker.fail(2)
        await until(lambda: len(backup.done) == 2)
        ended_at = anyio.current_time()
    assert anyio.current_time() - ended_at < 0.01  # of a clock that counts waits alone; the limit is 2 s
