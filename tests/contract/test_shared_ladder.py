"""Atoms of one group on sinks of one bus are one ladder: a trip anywhere routes everywhere, and is told once."""

from __future__ import annotations

import contextlib

import anyio

from ephemeral import HealthOptions, PriorityProcessorAtom


class Service:
    """What the atoms of all workers call."""

    def __init__(self):
        self.is_down = False
        self.done = []

    async def __call__(self, item):
        if self.is_down:
            raise ConnectionError(item)
        self.done.append(item)


@contextlib.asynccontextmanager
async def ladder(sink, primary, backup, **options):
    options = {"failure_threshold": 3, "probe_interval": 0.05, "reroute_failed": True, **options}
    async with (
        PriorityProcessorAtom(1, primary, sink, **options) as first,
        PriorityProcessorAtom(2, backup, sink, **options),
    ):
        yield first


async def edges_told(*sinks):
    """How often the whole fleet was told of a failover, and of a recovery."""
    for sink in sinks:
        assert await sink.flush(5)
    return await sinks[0].shared_count("failover.requested"), await sinks[0].shared_count("failover.restored")


async def test_a_trip_anywhere_routes_everywhere_and_a_recovery_restores_everywhere(bus, until):
    primary, backup = Service(), Service()
    async with bus.sinks(2) as (here, there):
        async with ladder(here, primary, backup) as one, ladder(there, primary, backup) as two:
            await two.enqueue("before")
            await until(lambda: primary.done == ["before"])
            primary.is_down = True
            for n in range(3):
                await one.enqueue(f"w{n}")
            await until(lambda: not two.is_healthy and len(backup.done) == 3)
            await two.enqueue("elsewhere")
            await until(lambda: "elsewhere" in backup.done)
            primary.is_down = False

            async def traffic():
                # Real items are the canaries: without traffic a rung stays down.
                n = 0
                while True:
                    await two.enqueue(f"t{n}")
                    n += 1
                    await anyio.sleep(0.005)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(traffic)
                await until(lambda: one.is_healthy and two.is_healthy)
                tasks.cancel_scope.cancel()
        assert await edges_told(here, there) == (1, 1)
        assert await here.shared_count("failover.requested:pri1→pri2") == 1


async def test_failures_of_several_workers_make_one_trip(bus, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    async with bus.sinks(3) as sinks, contextlib.AsyncExitStack() as stack:
        atoms = [await stack.enter_async_context(ladder(sink, primary, backup)) for sink in sinks]
        for n, atom in enumerate(atoms):
            await atom.enqueue(f"w{n}")
        await until(lambda: not any(atom.is_healthy for atom in atoms))
        await until(lambda: sorted(backup.done) == ["w0", "w1", "w2"])
        assert await edges_told(*sinks) == (1, 0)
        assert await sinks[0].shared_count("processing.failed:pri1") == 3
        # The ladder's signals for each item are counted for all, and stay out of the others' windows.
        assert sinks[0].count_recent_by_prefix("processing.failed") == 1


async def test_one_canary_in_the_whole_fleet(bus, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    calls = []

    async def probe():
        calls.append(primary.is_down)
        await anyio.sleep(0.01)
        return not primary.is_down

    async with bus.sinks(3) as sinks, contextlib.AsyncExitStack() as stack:
        atoms = [await stack.enter_async_context(ladder(sink, primary, backup, probe=probe)) for sink in sinks]
        for n in range(3):
            await atoms[0].enqueue(f"w{n}")
        await until(lambda: len(calls) >= 3)
        primary.is_down = False
        await until(lambda: all(atom.is_healthy for atom in atoms))
        await edges_told(*sinks)
        probes = [await sinks[0].shared_count(f"probe.{what}") for what in ("testing", "failed", "success")]
        assert probes == [len(calls), len(calls) - 1, 1]


async def test_isolating_by_hand_holds_for_the_whole_fleet(bus, until):
    primary, backup = Service(), Service()
    async with bus.sinks(2) as (here, there):
        async with ladder(here, primary, backup) as one, ladder(there, primary, backup) as two:
            one.isolate()
            assert not one.is_healthy
            await until(lambda: two.get_health().state == "isolated")
            await two.enqueue("w")
            await until(lambda: backup.done == ["w"])
            two.reset_health()
            await until(lambda: one.is_healthy and there.detect("failover.restored:pri1"))
        assert await edges_told(here, there) == (1, 1)


async def test_a_sick_worker_below_the_quorum_routes_away_alone(bus, until):
    sick, healthy, backup = Service(), Service(), Service()
    sick.is_down = True
    health = HealthOptions(quorum=2)
    async with (
        bus.sinks(2) as (here, there),
        ladder(here, sick, backup, health=health) as one,
        ladder(there, healthy, backup, health=health) as two,
    ):
        for n in range(3):
            await one.enqueue(f"w{n}")
        await until(lambda: len(backup.done) == 3)
        assert not one.is_healthy
        assert one.get_health().is_local
        await two.enqueue("fine")
        await until(lambda: healthy.done == ["fine"])
        (event,) = here.sense("failover.requested*")
        assert event.payload == {"route": "pri2", "local": True}


async def test_whoever_joins_knows_what_is_down_before_it_takes_an_item(bus, until):
    primary, backup = Service(), Service()
    async with bus.sinks(2) as (here, there), ladder(here, primary, backup, probe_interval=60.0) as one:
        primary.is_down = True
        for number in range(3):
            await one.enqueue(number)
        await until(lambda: not one.is_healthy)
        primary.is_down = False
        async with ladder(there, primary, backup, probe_interval=60.0) as first:
            await until(lambda: not first.is_healthy)  # the news have come to that sink
        for number in range(5):
            async with ladder(there, primary, backup, probe_interval=60.0) as late:
                assert late.try_enqueue(f"late {number}")
        assert primary.done == []
        assert backup.done[3:] == [f"late {number}" for number in range(5)]
