"""Every wait of the ladder's public awaits, cut there: nothing half done, no slot and no lease lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ephemeral import HealthOptions
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Ladder, Service, ladder
from .work_kit import by_scope, by_task, cut, cut_everywhere

How = Callable[[anyio.CancelScope], None]

however = pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],  # trio's tasks are cancelled by scopes alone
    indirect=["anyio_backend"],
)


async def check_unharmed(group: Ladder, slots: int) -> None:
    """The counters balance, nothing is left, and each slot can be used."""
    group.first.reset_health()
    assert await group.first.drain(100.0)
    counts = group.first.statistics()
    assert (counts.pending_count, counts.active_count) == (0, 0)
    done = counts.total_completed
    async with anyio.create_task_group() as tasks:
        for number in range(slots):
            tasks.start_soon(group.first.call, f"after {number}")
        await wait_all_blocked()
        assert group.first.active_count == slots
    assert group.first.total_completed == done + slots


@pytest.mark.parametrize("slots", [1, 3])
@however
async def test_a_call_that_runs(how: How, slots: int) -> None:
    async def scene(at: int) -> bool:
        async with ladder(Service(takes=1.0), max_concurrency=slots) as group:
            was_cut = await cut(lambda: group.first.call("w"), at, how)
            assert group.statuses == ({"cancelled": 1} if was_cut else {"completed": 1})
            assert group.first.consecutive_failures == 0
            await check_unharmed(group, slots)
        return was_cut

    assert await cut_everywhere(scene) >= 1


@however
async def test_a_call_that_waits_for_its_slot(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=1.0)
        async with ladder(service) as group:
            await group.enqueue("before", "behind")
            was_cut = await cut(lambda: group.first.call("w"), at, how)
            await group.first.drain()
            assert group.statuses == ({"cancelled": 1, "completed": 2} if was_cut else {"completed": 3})
            assert service.most_active == 1
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 2


async def test_a_call_cancelled_in_the_instant_its_turn_comes() -> None:
    """The slot is given, and taken back before the caller's task has run again."""
    service = Service(takes=1.0)
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        await group.enqueue("before")
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                await group.first.call("w")

        tasks.start_soon(call)
        await wait_all_blocked()

        def cancel(_event: Any) -> None:
            # The slot is free at the end of this signal's run: the call's turn comes in the same step of the loop.
            scope.cancel()

        with group.sink.subscribe(cancel, "processing.complete:pri1:before"):
            await group.settle(1.0)
        assert group.statuses == {"completed": 1, "cancelled": 1}
        await check_unharmed(group, 1)


@however
async def test_a_call_that_is_handed_on(how: How) -> None:
    async def scene(at: int) -> bool:
        services = [Service(takes=1.0, is_down=True), Service(takes=1.0)]
        async with ladder(*services, reroute_failed=True) as group:
            group.first.isolate()
            await group.enqueue("keeps the backup busy")
            group.first.reset_health()
            services[1].takes = 3.0
            was_cut = await cut(lambda: group.first.call("w"), at, how)
            services[0].is_down = False
            await group.first.drain()
            assert group.statuses == ({"completed": 1, "cancelled": 1} if was_cut else {"completed": 2})
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 2


@however
async def test_a_call_that_is_a_canary(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=1.0)
        async with ladder(service, Service(takes=1.0), failure_threshold=1) as group:
            service.is_down = True
            await group.enqueue("trips it")
            await group.settle(6.0)
            service.is_down = False
            was_cut = await cut(lambda: group.first.call("w"), at, how)
            assert group.first.is_healthy is not was_cut
            assert group.ears.starting("probe.failed") == []
            if was_cut:
                assert group.first.get_health().state == "down"
                assert await group.first.call("the next one is the canary") == "service:the next one is the canary"
            assert group.first.is_healthy
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 1


@however
async def test_a_call_that_was_a_failed_canary_and_waits_in_the_line(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=1.0, is_down=True)
        async with ladder(service, failure_threshold=1, max_pending=1) as group:
            await group.enqueue("trips it")
            await group.settle(6.0)

            async def heal() -> None:
                await anyio.sleep(3.0)
                service.is_down = False

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(heal)
                was_cut = await cut(lambda: group.first.call("w"), at, how)
            assert group.statuses == ({"failed": 1, "cancelled": 1} if was_cut else {"failed": 1, "completed": 1})
            assert group.first.try_enqueue("its place in the line is free")
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 3


@however
async def test_a_call_that_is_slow(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=3.0)
        async with ladder(service, failure_threshold=9, health=HealthOptions(slow_after=1.0)) as group:
            was_cut = await cut(lambda: group.first.call("w"), at, how)
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 1


@however
async def test_an_enqueue_that_waits_for_room(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=1.0)
        async with ladder(service, max_pending=1) as group:
            await group.enqueue("runs", "waits")
            was_cut = await cut(lambda: group.first.enqueue("w"), at, how)
            await group.first.drain()
            assert service.done == (["runs", "waits"] if was_cut else ["runs", "waits", "w"])
            assert group.first.total_enqueued == len(service.done)
            assert group.first.try_enqueue("there is room")
            assert await group.first.drain()
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 1


async def test_an_enqueue_cancelled_leaves_its_place_to_the_next() -> None:
    service = Service(takes=1.0)
    async with ladder(service, max_pending=1) as group, anyio.create_task_group() as tasks:
        await group.enqueue("runs", "waits")
        scope = anyio.CancelScope()

        async def producer(item: str, scope: anyio.CancelScope) -> None:
            with scope:
                await group.first.enqueue(item)

        tasks.start_soon(producer, "cancelled", scope)
        await wait_all_blocked()
        tasks.start_soon(producer, "next", anyio.CancelScope())
        await wait_all_blocked()
        with group.sink.subscribe(lambda event: scope.cancel(), "processing.started:pri1:waits"):
            await group.settle(1.0)
        await group.settle(5.0)
        assert service.done in (["runs", "waits", "next"], ["runs", "waits", "cancelled", "next"])
        assert group.first.total_enqueued == len(service.done)


@however
async def test_an_enqueue_of_many_keeps_those_that_were_accepted(how: How) -> None:
    async def scene(at: int) -> bool:
        service = Service(takes=1.0)
        async with ladder(service, max_pending=1) as group:
            was_cut = await cut(lambda: group.first.enqueue_many(range(5)), at, how)
            await group.first.drain()
            assert service.done == list(range(len(service.done)))
            assert group.first.total_enqueued == len(service.done)
            assert was_cut or len(service.done) == 5
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 3


@however
async def test_a_drain(how: How) -> None:
    async def scene(at: int) -> bool:
        async with ladder(Service(takes=1.0)) as group:
            await group.enqueue("a", "b")
            was_cut = await cut(group.first.drain, at, how)
            assert group.first.total_enqueued == 2
            assert await group.first.drain()
            await check_unharmed(group, 1)
        return was_cut

    assert await cut_everywhere(scene) >= 1


@however
async def test_entering_and_leaving(how: How) -> None:
    """Cancelled anywhere in its life, a block ends at once and accounts for all it accepted."""

    async def scene(at: int) -> bool:
        service = Service(takes=1.0)
        opened: list[Ladder] = []

        async def block() -> None:
            async with ladder(service, Service()) as group:
                opened.append(group)
                await group.first.enqueue_many("abc")
                await group.first.call("d")

        was_cut = await cut(block, at, how)
        if opened:
            counts = opened[0].first.statistics()
            assert (counts.pending_count, counts.active_count) == (0, 0)
            assert was_cut or counts.total_completed == 4
            assert counts.total_completed + counts.total_cancelled == counts.total_enqueued
        assert service.active == 0
        return was_cut

    assert await cut_everywhere(scene) >= 3


async def test_a_call_that_leaves_the_line_leaves_its_place_to_a_producer() -> None:
    service = Service(is_down=True)
    async with ladder(service, failure_threshold=1, max_pending=1) as group, anyio.create_task_group() as tasks:
        await group.enqueue("trips it")
        await group.settle(5.0)
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                await group.first.call("w")

        tasks.start_soon(call)
        await wait_all_blocked()
        tasks.start_soon(group.first.enqueue, "waits for room")
        await wait_all_blocked()
        assert group.statuses == {"failed": 1, "pending": 1}
        scope.cancel()
        await wait_all_blocked()
        assert group.statuses == {"failed": 1, "cancelled": 1, "pending": 1}
        service.is_down = False
