"""Every wait of every public await, cut there: nothing half accepted, no place in the line and no slot lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator

from .work_kit import Gates, Work, assert_whole, by_scope, by_task, cut, cut_everywhere, settle, totals, working

How = Callable[[anyio.CancelScope], None]


asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
# trio's tasks are cancelled by scopes alone.
however = pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)


@however
async def test_enqueue_that_waits_for_room(how: How) -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()
        async with working(gates, max_concurrency=1, max_pending=2) as work:
            await work.enqueue_many(["runs", "waits 1", "waits 2"][:1])
            await settle(work)
            await work.enqueue_many(["waits 1", "waits 2"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(release_first, work, gates)
                reached = await cut(lambda: work.enqueue("cut"), at, how)
            await settle(work)
            assert work.total_enqueued == (3 if reached else 4)
            await assert_whole(work, gates, limit=1, bound=2)
            assert ("cut" in gates.started) is not reached
        return reached

    async def release_first(work: Work, gates: Gates) -> None:
        await settle(work)
        gates.let_go("runs")

    assert await cut_everywhere(scenario) > 0


@however
async def test_enqueue_many_keeps_what_came_before_the_cut(how: How) -> None:
    items = ["a", "b", "c", "d", "e"]

    async def scenario(at: int) -> bool:
        gates = Gates()
        async with working(gates, max_concurrency=1, max_pending=1) as work:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(release_all_in_turn, work, gates)
                reached = await cut(lambda: work.enqueue_many(items), at, how)
                tasks.cancel_scope.cancel()
            gates.open()
            await settle(work)
            assert gates.started == items[: work.total_enqueued]
            assert (work.total_enqueued < len(items)) is reached
            await assert_whole(work, gates, limit=1, bound=1)
        return reached

    async def release_all_in_turn(work: Work, gates: Gates) -> None:
        for item in items:
            await settle(work)
            gates.let_go(item)

    assert await cut_everywhere(scenario) > 2


@however
async def test_drain(how: How) -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()
        async with working(gates, max_concurrency=1) as work:
            await work.enqueue_many(range(3))
            work.complete()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_later, work, gates)
                reached = await cut(work.drain, at, how)
            assert await work.drain()
            assert totals(work) == (3, 0, 0)
        return reached

    assert await cut_everywhere(scenario) > 0


async def test_entering_the_block_never_waits() -> None:
    gates = Gates()
    work = EphemeralWorkCoordinator[Any](gates, EphemeralOptions(max_concurrency=2, max_pending=3))
    await work.enqueue("early")
    with pytest.raises(StopIteration):
        work.__aenter__().send(None)
    await assert_whole(work, gates, limit=2, bound=3)
    await work.__aexit__(None, None, None)
    assert work.is_drained


async def test_a_block_entered_in_a_cancelled_scope_cancels_what_was_accepted() -> None:
    gates = Gates()
    work = EphemeralWorkCoordinator[Any](gates, EphemeralOptions(max_concurrency=2))
    await work.enqueue_many(range(3))
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with work:
            pass
    assert scope.cancelled_caught
    assert totals(work) == (0, 0, 3)
    assert work.is_drained


@however
async def test_leaving_the_block(how: How) -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()
        work = EphemeralWorkCoordinator[Any](gates, EphemeralOptions(max_concurrency=2))

        async def whole_block() -> None:
            async with work:
                await work.enqueue_many(range(4))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_later, work, gates)
            reached = await cut(whole_block, at, how)
        completed, failed, cancelled = totals(work)
        assert (completed + cancelled, failed) == (4, 0)
        assert work.is_drained
        assert gates.active == []
        # A cut that comes once all has ended finds nothing to cancel.
        assert reached or cancelled == 0
        return reached

    assert await cut_everywhere(scenario) > 0


@however
@pytest.mark.parametrize("error", [ValueError("the user's"), None])
async def test_leaving_while_a_body_takes_long_to_end(how: How, error: Exception | None) -> None:
    async def scenario(at: int) -> bool:
        async def slow_to_end(item: int) -> None:
            try:
                await anyio.sleep(10)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1)

        work = EphemeralWorkCoordinator[int](slow_to_end, EphemeralOptions(max_concurrency=2, drain_timeout=5))

        async def whole_block() -> None:
            async with work:
                await work.enqueue_many(range(3))
                await anyio.sleep(0.5)
                if error is not None:
                    raise error

        caught, reached = None, False
        try:
            reached = await cut(whole_block, at, how)
        except ValueError as raised:
            caught = raised
        assert caught in {None, error}
        assert reached or caught is error
        assert totals(work) == (0, 0, 3)
        assert work.is_drained
        return reached

    assert await cut_everywhere(scenario) > 0


@however
async def test_room_granted_and_cancelled_in_the_same_turn_goes_to_the_next(how: How) -> None:
    """The first item of the line starts, which makes room, and its body cancels the producer that got it."""
    producer: list[Any] = []
    gates = Gates()

    async def body(item: Any, op: Any) -> None:
        if item == "second":
            scope, task = producer
            task.cancel() if how is by_task else scope.cancel()
        await gates(item, op)

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            producer[:] = [scope, asyncio.current_task() if how is by_task else None]
            await work.enqueue("cancelled")

    async with working(body, max_concurrency=1, max_pending=1) as work:
        await work.enqueue("first")
        await settle(work)
        await work.enqueue("second")
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as others:
            first = None
            if how is by_task:
                first = asyncio.ensure_future(cancelled())
            else:
                tasks.start_soon(cancelled)
            await settle(work)
            others.start_soon(work.enqueue, "next")
            await settle(work)
            gates.let_go("first")
            await settle(work)
            if first is not None:
                assert first.cancelled()
                assert work.pending_count == 1, "the room of the cancelled one was lost"
            gates.open()
        await settle(work)
        # A scope does not reach a wait that is over; asyncio's own cancel does.
        expected = ["first", "second", "next"] if how is by_task else ["first", "second", "cancelled", "next"]
        assert gates.started == expected
        assert work.total_enqueued == len(expected)
        await assert_whole(work, gates, limit=1, bound=1)


async def open_later(work: Work, gates: Gates) -> None:
    await settle(work)
    gates.open()


# asyncio's own cancellation


@asyncio_only
@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.5])
async def test_asyncio_timeout_around_a_block(seconds: float) -> None:
    async def body(item: int) -> None:
        await anyio.sleep(1)

    work = EphemeralWorkCoordinator[int](body, EphemeralOptions(max_concurrency=1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds), work:
            await work.enqueue_many(range(3))
    completed, _, cancelled = totals(work)
    assert completed + cancelled == 3
    assert completed in {int(seconds), int(seconds - 0.5)}
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@asyncio_only
async def test_asyncio_timeout_around_enqueue_and_drain() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1, max_pending=1) as work:
        await work.enqueue("runs")
        await settle(work)
        await work.enqueue("waits")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await work.enqueue("too late")
        assert work.total_enqueued == 2
        work.complete()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await work.drain()
        gates.open()
        assert await work.drain()
        assert gates.started == ["runs", "waits"]


@asyncio_only
@pytest.mark.parametrize("is_leaving", [False, True])
async def test_a_cancelled_task_ends_cancelled(is_leaving: bool) -> None:
    work = EphemeralWorkCoordinator[int](lambda item: None)
    gates = Gates()

    async def block() -> None:
        nonlocal work
        async with working(gates) as work:
            await work.enqueue(1)
            if not is_leaving:
                await anyio.sleep(100)

    task = asyncio.ensure_future(block())
    await settle(work)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert totals(work) == (0, 0, 1)


@asyncio_only
async def test_a_block_that_was_left_owes_its_task_no_cancellation() -> None:
    task = asyncio.current_task()
    assert task is not None
    gates = Gates()

    async def failing_block() -> None:
        async with working(gates) as work:
            await work.enqueue(1)
            await settle(work)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  the one just above
        await failing_block()
    async with working(gates) as work:
        gates.open()
        await work.enqueue(2)
    assert task.cancelling() == 0


@asyncio_only
@pytest.mark.parametrize("waits", [False, True])
async def test_a_body_that_cancels_the_task_it_runs_in_harms_nobody_else(waits: bool) -> None:
    async def body(item: str) -> None:
        if item == "cancels":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if waits:
                await anyio.sleep(1)
        elif item == "groups":
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        ran.append(item)

    async def fail() -> None:
        raise ValueError

    ran: list[str] = []
    async with working(body, max_concurrency=1) as work:
        await work.enqueue("cancels")
        await settle(work)
        await work.enqueue_many(["after 1", "groups", "after 2"])
        await settle(work)
        assert ran[-2:] == ["after 1", "after 2"]
        await work.enqueue("after 3")
        await settle(work)
        assert ran[-1] == "after 3"
        assert totals(work) == ((3, 1, 1) if waits else (4, 1, 0))
