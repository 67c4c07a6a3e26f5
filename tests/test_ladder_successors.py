"""Groups of one name, one after the other, on a sink with a bus: one tells, the ended ones are gone."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import anyio
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral.testing import MemoryBus, wait_all_blocked

from .ladder_kit import Service


async def test_each_edge_is_told_once_however_many_groups_came_before() -> None:
    service = Service(is_down=True)
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink:
        for _ in range(3):
            told = Counter[str]()
            async with PriorityProcessorAtom(1, service, sink, failure_threshold=1) as atom:
                await anyio.sleep(1.0)
                atom.reset_health()
                await anyio.sleep(1.0)
                with sink.subscribe(lambda event, told=told: told.update([event.signal]), "failover.*"):
                    await atom.enqueue("w")
                    await anyio.sleep(1.0)
            assert told == {"failover.requested:pri1→pri2": 1, "failover.exhausted": 1}


async def test_nothing_keeps_a_group_that_has_ended() -> None:
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink:

        async def use() -> weakref.ref[Any]:
            service = Service(is_down=True)
            async with PriorityProcessorAtom(1, service, sink, failure_threshold=2) as atom:
                await atom.enqueue("w")
            return weakref.ref(atom._ladder)

        ladders = [await use() for _ in range(3)]
        await anyio.sleep(1.0)
        gc.collect()
        assert [ladder() for ladder in ladders] == [None, None, None]


async def test_an_edge_that_the_last_item_caused_is_told_after_the_block_was_left() -> None:
    service = Service(is_down=True)
    async with MemoryBus(delay=0.01) as bus, SignalSink(backend=bus.backend()) as sink:
        told = Counter[str]()
        sink.subscribe(lambda event: told.update([event.signal]), "failover.requested:*")
        async with PriorityProcessorAtom(1, service, sink, failure_threshold=3) as atom:
            await anyio.sleep(1.0)
            await atom.enqueue_many("abc")
        ladder = weakref.ref(atom._ladder)
        assert told == {}
        await anyio.sleep(1.0)
        assert told == {"failover.requested:pri1→pri2": 1}
        del atom
        gc.collect()
        assert ladder() is None


async def test_a_group_that_still_ends_leaves_the_telling_to_the_next_one() -> None:
    slow, service = Service(takes=10.0), Service(is_down=True)
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink, anyio.create_task_group() as tasks:
        told = Counter[str]()
        sink.subscribe(lambda event: told.update([event.signal]), "failover.requested:*")

        async def old() -> None:
            async with PriorityProcessorAtom(1, slow, sink) as atom:
                await atom.enqueue("w")

        tasks.start_soon(old)
        await wait_all_blocked()
        async with PriorityProcessorAtom(1, service, sink, failure_threshold=1) as new:
            await anyio.sleep(1.0)
            await new.enqueue("w")
            await anyio.sleep(1.0)
            assert not new.is_healthy
        assert told == {"failover.requested:pri1→pri2": 1}


async def test_an_atom_that_has_ended_decides_nothing_for_the_fleet() -> None:
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink:
        async with PriorityProcessorAtom(1, Service(), sink) as ended:
            await anyio.sleep(1.0)
        async with PriorityProcessorAtom(1, Service(), sink) as atom:
            await anyio.sleep(1.0)
            ended.isolate()
            await anyio.sleep(1.0)
            assert atom.is_healthy
        assert ended.get_health().state == "up"
        assert [health.processor for health in ended.get_ladder()] == ["pri1"]


@pytest.mark.parametrize("after", [0.0, 0.005, 0.015])
async def test_a_canary_cancelled_while_the_bus_answers_leaves_the_lease_to_the_next(after: float) -> None:
    service = Service(is_down=True)
    async with (
        MemoryBus(delay=0.01) as bus,
        SignalSink(backend=bus.backend()) as sink,
        PriorityProcessorAtom(1, service, sink, failure_threshold=1, probe_interval=5.0) as atom,
    ):
        await anyio.sleep(1.0)
        await atom.enqueue("trips it")
        await anyio.sleep(6.0)
        service.is_down = False
        with anyio.move_on_after(after):
            await atom.call("cancelled")
        await anyio.sleep(1.0)
        await atom.enqueue("next")
        await anyio.sleep(1.0)
        assert atom.is_healthy
