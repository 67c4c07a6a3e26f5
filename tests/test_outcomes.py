"""How a body's end is counted: nothing that was cut short looks successful, nothing a body raises stops the rest."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ephemeral import Operation, current_operation

from .work_kit import Gates, Work, settle, totals, working

only_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
only_trio = pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)


class OddError(BaseException):
    """Neither an Exception nor the loop's."""


@dataclass(frozen=True)
class FrozenError(Exception):
    """Refuses assignment, of its traceback too."""

    code: int


def loop_error() -> BaseException:
    """Make the error by which this loop cancels."""
    kind: Any = anyio.get_cancelled_exc_class()
    return kind() if kind is asyncio.CancelledError else kind._create(source="unknown")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "error",
    [ValueError("v"), OddError("o"), GeneratorExit(), StopAsyncIteration(), TimeoutError("its own"), FrozenError(7),
     ExceptionGroup("g", [ValueError(), FrozenError(7)]), RecursionError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_what_a_body_raises_is_a_failure_and_the_next_item_runs(error: BaseException, waits: bool) -> None:
    async def body(item: str) -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        if item == "fails":
            raise error

    async with working(body, max_concurrency=1) as work:
        await work.enqueue_many(["fails", "runs"])
        await settle(work)
        (failed,) = work.get_failed()
        assert (failed.error, failed.is_faulted, failed.is_cancelled) == (error, True, False)
        assert __file__ in str(failed.error_trace)
    assert totals(work) == (1, 1, 0)


@pytest.mark.parametrize("waits", [False, True])
async def test_stop_iteration_is_a_failure_too(waits: bool) -> None:
    async def body(item: str) -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        raise StopIteration(item)

    async with working(body) as work:
        await work.enqueue("stops")
        await settle(work)
        (failed,) = work.get_failed()
        assert isinstance(failed.error, RuntimeError)
    assert totals(work) == (0, 1, 0)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_body_that_raises_the_loops_own_error_counts_as_cancelled_and_its_worker_lives(waits: bool) -> None:
    async def body(item: str) -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        if item == "cancels itself":
            raise loop_error()

    async with working(body, max_concurrency=1) as work:
        await work.enqueue_many(["cancels itself", "runs"])
        await settle(work)
        await work.enqueue("runs too")
        await settle(work)
        cancelled, *_ = work.get_snapshot()
        assert (cancelled.is_cancelled, cancelled.is_faulted, cancelled.error) == (True, False, None)
    assert totals(work) == (2, 0, 1)


async def test_a_cancelled_scope_inside_a_body_is_its_own_affair() -> None:
    async def body(item: int) -> None:
        with anyio.move_on_after(1):
            await anyio.sleep(10)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 100)
            tasks.cancel_scope.cancel()

    async with working(body, max_concurrency=1) as work:
        await work.enqueue_many(range(2))
    assert totals(work) == (2, 0, 0)
    assert anyio.current_time() == 2


# Cancelling


async def test_cancel_operation_of_one_that_runs_waits_or_is_unknown() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1, max_pending=2) as work:
        running, waiting = [await work.enqueue(item) for item in ("runs", "waits")]
        assert work.cancel_operation(waiting)
        await settle(work)
        assert totals(work) == (0, 0, 1)
        assert not work.cancel_operation(waiting)
        assert work.cancel_operation(running)
        await settle(work)
        assert not work.cancel_operation(running)
        assert not work.cancel_operation(-1)
        assert totals(work) == (0, 0, 2)
        assert gates.cancelled == ["runs"]
        assert work.try_get_operation(waiting) is None
        ended = work.try_get_operation(running)
        assert ended is not None
        assert (ended.is_cancelled, ended.is_faulted) == (True, False)


async def test_a_cancelled_item_gives_its_place_to_a_producer_that_waits() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1, max_pending=1) as work:
        await work.enqueue("runs")
        await settle(work)
        waiting = await work.enqueue("waits")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.enqueue, "comes")
            await settle(work)
            assert work.cancel_operation(waiting)
        assert work.pending_count == 1
        gates.open()
    assert gates.started == ["runs", "comes"]


async def test_cancelling_one_touches_neither_its_siblings_nor_the_block() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=3) as work:
        await work.enqueue_many(range(5))
        await settle(work)
        assert work.cancel_operation(gates.operations[1].id)
        await settle(work)
        assert (gates.cancelled, gates.active) == ([1], [0, 2, 3])
        await anyio.sleep(1)
        gates.open()
    assert totals(work) == (4, 0, 1)


async def test_work_that_swallows_its_cancellation_does_not_look_successful() -> None:
    gates = Gates()
    gates.stubborn.add("stubborn")
    async with working(gates, max_concurrency=1) as work:
        await work.enqueue_many(["stubborn", "next"])
        await settle(work)
        work.cancel_operation(gates.operations["stubborn"].id)
        await settle(work)
        assert totals(work) == (0, 0, 1)
        assert [seen.is_cancelled for seen in work.get_snapshot()] == [True, False]
        gates.open()
    assert totals(work) == (1, 0, 1)


async def test_cleaning_up_after_a_cancellation_takes_its_time_and_its_slot() -> None:
    async def body(item: str) -> None:
        started.append(item)
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)

    started: list[str] = []
    async with working(body, max_concurrency=1) as work:
        first = await work.enqueue("cleans up")
        await work.enqueue("next")
        await settle(work)
        work.cancel_operation(first)
        await anyio.sleep(2)
        assert (started, work.active_count) == (["cleans up"], 1)
        await anyio.sleep(2)
        assert (started, totals(work)) == (["cleans up", "next"], (0, 0, 1))
        work.cancel()
    assert totals(work) == (0, 0, 2)


async def test_an_error_raised_by_the_clean_up_is_a_failure() -> None:
    async def body(item: int) -> None:
        try:
            await anyio.sleep(100)
        finally:
            raise ValueError("the clean-up failed")

    async with working(body) as work:
        operation = await work.enqueue(1)
        await settle(work)
        work.cancel_operation(operation)
    assert totals(work) == (0, 1, 0)


@pytest.mark.parametrize("call", [Work.cancel, lambda work: work.cancel_operation(current_operation().id)])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_body_may_cancel_itself(call: Callable[[Work], object], waits: bool) -> None:
    async def body(item: int) -> None:
        call(work)
        if waits:
            await anyio.sleep(100)

    async with working(body, max_concurrency=1) as work:
        await work.enqueue(1)
        await settle(work)
        assert totals(work) == (0, 0, 1)
        assert anyio.current_time() == 0


@only_trio
async def test_a_trio_nursery_cut_short_counts_as_cancelled() -> None:
    trio = sys.modules["trio"]

    async def body(item: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 100)
            nursery.start_soon(trio.sleep, 100)

    async with working(body) as work:
        operation = await work.enqueue(1)
        await settle(work)
        work.cancel_operation(operation)
    assert totals(work) == (0, 0, 1)


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
async def test_a_group_of_nothing_but_cancellations_is_one(ends: str) -> None:
    async def body(item: int) -> None:
        others = [ValueError()] if ends == "failed" else []
        raise BaseExceptionGroup("together", [loop_error(), BaseExceptionGroup("nested", [loop_error()]), *others])

    async with working(body) as work:
        await work.enqueue(1)
    assert totals(work) == ((0, 0, 1) if ends == "cancelled" else (0, 1, 0))


# Time limits


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_body_out_of_time_is_cancelled_and_counts_as_failed(swallows: bool) -> None:
    gates = Gates()
    if swallows:
        gates.stubborn.add("slow")
    async with working(gates, max_concurrency=1, operation_timeout=5) as work:
        await work.enqueue_many(["slow", "next"])
        await anyio.sleep(5)
        await settle(work)
        assert gates.cancelled == ["slow"]
        (failed,) = work.get_failed()
        assert isinstance(failed.error, TimeoutError)
        assert failed.duration == 5
        gates.open()
    assert totals(work) == (1, 1, 0)


async def test_a_body_cancelled_within_its_time_counts_as_cancelled() -> None:
    gates = Gates()
    async with working(gates, operation_timeout=5) as work:
        operation = await work.enqueue(1)
        await settle(work)
        work.cancel_operation(operation)
        await settle(work)
        assert totals(work) == (0, 0, 1)


# Contexts

who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_each_body_sees_its_enqueuer_and_leaks_into_none() -> None:
    async def body(item: str) -> None:
        seen.append((item, who.get()))
        who.set(f"set by {item}")
        await anyio.lowlevel.checkpoint()
        seen.append((item, who.get()))

    async def produce(name: str) -> None:
        who.set(name)
        await work.enqueue(f"of {name}")

    seen: list[tuple[str, str]] = []
    async with working(body, max_concurrency=1, max_pending=1) as work:
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(produce, name)
                await settle(work)
        await work.enqueue("of nobody")
    expected = [(f"of {name}", name) for name in ("a", "b", "c", "nobody")]
    assert [pair for pair in seen if not pair[1].startswith("set")] == expected
    assert [pair for pair in seen if pair[1].startswith("set")] == [(item, f"set by {item}") for item, _ in expected]
    assert who.get() == "nobody"


async def test_the_current_operation_in_a_body_and_the_tasks_below_it() -> None:
    async def body(item: int, op: Operation) -> None:
        found.append(current_operation() is op)
        await anyio.lowlevel.checkpoint()
        found.append(current_operation() is op)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(below, op)
        await work.enqueue(item - 1) if item else None

    async def below(op: Operation) -> None:
        await anyio.lowlevel.checkpoint()
        found.append(current_operation() is op)

    found: list[bool] = []
    async with working(body, max_concurrency=2) as work:
        with pytest.raises(LookupError, match="body"):
            current_operation()
        await work.enqueue(2)
        await settle(work)
    assert found == [True] * 9
    with pytest.raises(LookupError):
        current_operation()


# Turns of the loop


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("fails", [False, True])
async def test_bodies_that_never_wait_leave_the_loop_a_turn_every_5_ms(
    workers: int, fails: bool, anyio_backend: Any
) -> None:
    """Each body takes 1 ms of a clock that counts; the longest time between two turns of another task is measured."""
    passed = 0.0
    gates = Gates()

    async def body(item: Any, op: Operation) -> None:
        nonlocal passed
        if item in range(workers):  # all workers get busy, and are let go in one turn
            await gates(item, op)
        else:
            passed += 0.001
            if fails:
                raise ValueError

    async def observe() -> None:
        last = passed
        while work.pending_count:
            gaps.append(passed - last)
            last = passed
            await anyio.lowlevel.checkpoint()

    gaps: list[float] = []
    async with anyio.create_task_group() as tasks, working(body, max_concurrency=workers, max_pending=400) as work:
        work._workers.now = lambda: passed
        await work.enqueue_many(range(workers))
        await settle(work)
        await work.enqueue_many(range(100, 500))
        tasks.start_soon(observe)
        gates.open()
        work.complete()
        await work.drain()
    # trio shuffles the tasks of a turn, so that one task may run first in one turn and last in the next.
    turns = 1 if anyio_backend[0] == "asyncio" else 2
    assert max(gaps) <= turns * 0.005 + 0.001
    assert len(gaps) >= 60
