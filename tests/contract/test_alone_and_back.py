"""A worker that was alone takes over what its fleet holds, and tells no edge that the fleet has told already."""

from __future__ import annotations

import pytest

from ephemeral.testing import MemoryBus

from .test_health_faults import Memory, Service, fleet, told_by


@pytest.fixture
async def memory():
    async with MemoryBus() as bus:
        yield bus


async def test_who_recovered_alone_and_finds_the_fleet_down_goes_down_with_it_and_tells_nobody(memory, until):
    primary = Service()
    async with fleet(Memory(memory), until, 3, primary, Service()) as (one, *others):
        primary.is_down = True
        await one.fail()
        await until(lambda: not any(worker.first.is_healthy for worker in (one, *others)))
        for other in others:
            other.primary.is_cut = True
        memory.cut(one.sink.backend)
        primary.is_down = False
        await until(lambda: one.first.is_healthy)
        assert not any(other.first.is_healthy for other in others)
        memory.join(one.sink.backend)
        await until(lambda: not one.first.is_healthy)
        await until(lambda: all(worker.first.is_healthy for worker in (one, *others)))
        # Once for the fleet, once by and for itself while it was alone.
        told = await told_by([one, *others])
        assert told["failover.requested"] == 1
        assert told["failover.restored"] == 2
