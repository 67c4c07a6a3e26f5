"""Health when workers, their services and their bus fail together: one story in the whole fleet, over every bus."""

from __future__ import annotations

import contextlib

import anyio
import pytest

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink


class Service:
    """What the atoms of all workers call, or one of them alone."""

    def __init__(self):
        self.is_down = False
        self.done = []
        self.probes = 0

    async def __call__(self, item):
        if self.is_down:
            raise ConnectionError(item)
        self.done.append(item)

    async def probe(self):
        self.probes += 1
        return not self.is_down


@contextlib.asynccontextmanager
async def ladder(sink, primary, backup, **options):
    options = {"failure_threshold": 3, "probe_interval": 0.05, "reroute_failed": True, **options}
    async with (
        PriorityProcessorAtom(1, primary, sink, probe=primary.probe, **options) as first,
        PriorityProcessorAtom(2, backup, sink, **options),
    ):
        yield first


async def trip(atom):
    """Have the primary fail until it is out."""
    with anyio.fail_after(4):
        while atom.is_healthy:
            await atom.enqueue("trip")
            await anyio.sleep(0.001)


async def test_a_recovery_that_its_prober_leaves_on_is_told(bus, until):
    primary, backup = Service(), Service()
    async with bus.sinks(1) as (there,):
        for round_number in range(10):
            primary.is_down = True
            async with bus.sinks(1) as (here,), ladder(here, primary, backup) as atom:
                await trip(atom)
                primary.is_down = False
                before = primary.probes
                await until(lambda before=before: primary.probes > before)
                # Leaves with the probe's answer, and its sink with it.
            await until(lambda number=round_number: len(there.sense("failover.restored:pri1")) == number + 1)
            assert len(there.sense("failover.requested:*")) == round_number + 1
            assert len(there.sense("probe.success:pri1")) == round_number + 1


async def test_a_trip_that_its_worker_leaves_on_is_told(bus, until):
    primary, backup = Service(), Service()
    primary.is_down = True
    async with bus.sinks(1) as (there,), ladder(there, primary, backup, probe_interval=60.0) as other:
        for round_number in range(10):
            backup.done.clear()
            async with bus.sinks(1) as (here,), ladder(here, primary, backup, probe_interval=60.0) as atom:
                # Until it knows the table, what fails counts for nothing.
                await until(lambda atom=atom: atom._ladder.health._is_alone is False)
                for number in range(3):
                    await atom.enqueue(f"w{number}")
            await until(lambda number=round_number: len(there.sense("failover.requested:*")) == number + 1)
            other.reset_health()
            await until(lambda: other.is_healthy)
