"""Plain functions in threads, and threads as producers: real clocks, no luck."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    Operation,
    current_operation,
)
from ephemeral._loops import Loop

from .work_kit import Work, settle, totals, working

pytestmark = pytest.mark.real_time

name_of: ContextVar[str] = ContextVar("name_of", default="nobody")


class Held:
    """A plain body whose runs wait in their threads until the test lets all go."""

    def __init__(self) -> None:
        self.started = 0
        self.active = 0
        self.most_active = 0
        self.errors: dict[Any, BaseException] = {}
        self._lock = threading.Lock()
        self._go = threading.Event()

    def __call__(self, item: Any) -> None:
        with self._lock:
            self.started += 1
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        assert self._go.wait(20)
        with self._lock:
            self.active -= 1
        if item in self.errors:
            raise self.errors[item]

    def let_go(self) -> None:
        self._go.set()

    async def until_started(self, count: int) -> None:
        await until(lambda: self.started == count)


async def until(holds: Callable[[], bool]) -> None:
    """Give way until it holds; the clock only ends a test that would wait for ever."""
    with anyio.fail_after(20):
        while not holds():
            await anyio.lowlevel.checkpoint()


# Bodies in threads


async def test_plain_functions_run_in_threads_and_are_counted_by_how_they_end() -> None:
    def body(item: int, op: Operation) -> None:
        threads.add(threading.get_ident())
        assert current_operation() is op
        op.emit(f"item.{item}")
        names.append(name_of.get())
        if item == 1:
            raise ValueError("one")

    threads: set[int] = set()
    names: list[str] = []
    name_of.set("enqueuer")
    async with working(body, max_concurrency=2) as work:
        await work.enqueue_many(range(4))
    assert totals(work) == (3, 1, 0)
    assert threading.get_ident() not in threads
    assert names == ["enqueuer"] * 4
    assert work.count_signals_matching("item.*") == 4


async def test_there_are_never_more_threads_than_slots() -> None:
    held = Held()
    async with working(held, max_concurrency=3) as work:
        await work.enqueue_many(range(10))
        await held.until_started(3)
        await settle(work)
        assert (held.started, work.active_count, work.pending_count) == (3, 3, 7)
        held.let_go()
    assert held.most_active == 3
    assert totals(work) == (10, 0, 0)


async def test_more_threads_than_anyio_would_lend_run_at_once() -> None:
    held = Held()
    async with working(held, max_concurrency=60) as work:
        await work.enqueue_many(range(60))
        await held.until_started(60)
        held.let_go()
    assert held.most_active == 60


@pytest.mark.parametrize("timeout", [None, 300])
async def test_cancel_waits_for_threads_and_counts_them_by_how_they_end(timeout: float | None) -> None:
    held = Held()
    held.errors["fails"] = ValueError("at the end")
    async with working(held, max_concurrency=2, operation_timeout=timeout) as work:
        await work.enqueue_many(["returns", "fails", "waits"])
        await held.until_started(2)
        work.cancel()
        await settle(work)
        assert (work.active_count, work.total_cancelled) == (2, 1)
        assert not await work.drain(timeout=0)
        held.let_go()
    assert totals(work) == (1, 1, 1)
    assert held.active == 0


async def test_a_cancelled_thread_gives_its_slot_back_when_it_returns() -> None:
    held = Held()
    async with working(held, max_concurrency=1) as work:
        first = await work.enqueue(1)
        await work.enqueue(2)
        await held.until_started(1)
        assert work.cancel_operation(first)
        await settle(work)
        assert (held.started, work.active_count) == (1, 1)
        held.let_go()
    assert totals(work) == (2, 0, 0)
    assert held.most_active == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_thread_out_of_time_has_failed_at_once_and_keeps_its_slot(is_cancelled: bool) -> None:
    held = Held()
    async with working(held, max_concurrency=1, operation_timeout=0.2) as work:
        first = await work.enqueue("slow")
        await work.enqueue("next")
        await held.until_started(1)
        if is_cancelled:
            work.cancel_operation(first)
        await until(lambda: work.total_failed == 1)
        (failed,) = work.get_failed()
        assert isinstance(failed.error, TimeoutError)
        await settle(work)
        assert (held.started, work.pending_count) == (1, 1)
        failed_at = anyio.current_time()
        await until(lambda: anyio.current_time() > failed_at + 0.2)
        work._workers.slice_end = failed_at + 1000  # so that no new slice reads the clock for the next item
        held.let_go()
        await until(lambda: work.total_completed == 1)
        # It started when the slot was free, not when the last one was told to have failed.
        running = work.get_completed()[0]
        assert running.duration is not None
        assert running.duration < 0.2
    assert held.most_active == 1
    assert totals(work) == (1, 1, 0)


async def test_leaving_waits_for_a_thread_that_ran_out_of_time() -> None:
    held = Held()
    async with working(held, max_concurrency=1, operation_timeout=0.05) as work:
        await work.enqueue("slow")
        await until(lambda: work.total_failed == 1)
        work.cancel()
        threading.Timer(0.1, held.let_go).start()
    assert held.active == 0


@pytest.mark.parametrize("kind", ["coroutine", "awaitable"])
async def test_a_plain_function_that_returns_an_awaitable_is_told_to_be_async(kind: str) -> None:
    class Awaitable:
        def __await__(self) -> Any:
            yield

    async def asynchronous() -> None: ...

    async with working(lambda item: asynchronous() if kind == "coroutine" else Awaitable()) as work:
        await work.enqueue(1)
        await until(lambda: work.total_failed == 1)
        (failed,) = work.get_failed()
        assert isinstance(failed.error, TypeError)
        assert "async def" in str(failed.error)


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
async def test_an_order_to_end_from_a_thread_comes_out_bare(fatal: type[BaseException]) -> None:
    def body(item: int) -> None:
        raise error

    async def block() -> None:
        async with working(body) as work:
            await work.enqueue(1)
            await anyio.sleep(20)

    error = fatal("from a thread")
    try:
        await block()
    except BaseException as raised:
        found: BaseException | None = raised
    else:
        found = None
    assert found is error


# Producers in threads


def produce(work: Work, items: list[Any], refused: list[Any]) -> None:
    for item in items:
        try:
            work.enqueue_threadsafe(item)
        except CoordinatorCompletedError:
            refused.append(item)


async def test_many_threads_enqueue_through_a_small_line() -> None:
    async def body(item: tuple[int, int]) -> None:
        done.append(item)
        await anyio.lowlevel.checkpoint()

    done: list[tuple[int, int]] = []
    refused: list[Any] = []
    async with working(body, max_concurrency=2, max_pending=2) as work, anyio.create_task_group() as tasks:
        for thread in range(6):
            tasks.start_soon(
                anyio.to_thread.run_sync, produce, work, [(thread, number) for number in range(30)], refused
            )
    assert refused == []
    assert sorted(done) == [(thread, number) for thread in range(6) for number in range(30)]
    for thread in range(6):
        assert [number for origin, number in done if origin == thread] == list(range(30))
    assert totals(work) == (180, 0, 0)


@pytest.mark.parametrize("end", ["complete", "cancel", "leave", "raise"])
async def test_threads_that_wait_as_intake_ends_are_all_told(end: str) -> None:
    started = threading.Barrier(6)

    def produce_one(number: int) -> None:
        started.wait(20)
        produce(work, [number], refused)
        ended.append(number)

    async def body(item: Any) -> None:
        await go.wait()

    async def block() -> None:
        nonlocal work
        async with working(body, max_concurrency=1, max_pending=1) as work:
            await work.enqueue("runs")
            await settle(work)
            await work.enqueue("waits")
            for number in range(5):
                tasks.start_soon(anyio.to_thread.run_sync, produce_one, number)
            await anyio.to_thread.run_sync(started.wait, 20)
            await until(lambda: len(work._intake.producers) == 5)
            if end == "raise":
                raise ValueError
            if end == "cancel":
                work.cancel()
            if end == "complete":
                work.complete()
                go.set()
            if end == "leave":
                go.set()

    work: Work = EphemeralWorkCoordinator(body)
    go = anyio.Event()
    refused: list[int] = []
    ended: list[int] = []
    async with anyio.create_task_group() as tasks:
        try:
            await block()
        except ValueError:
            assert end == "raise"
        go.set()
    assert sorted(ended) == [0, 1, 2, 3, 4]
    assert sorted(refused) == [0, 1, 2, 3, 4]
    assert work.total_enqueued == 2
    with pytest.raises(CoordinatorCompletedError):
        await anyio.to_thread.run_sync(work.enqueue_threadsafe, "late")


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_thread_that_gets_room_takes_no_producer_along_that_may_still_be_cancelled() -> None:
    """In one turn a producer gets room, a thread after it too, and the producer is cancelled before it resumes."""

    async def body(item: str) -> None:
        started.append(item)
        if item == "runs":
            await go.wait()
        if item == "second":
            producer.cancel()

    go = anyio.Event()
    started: list[str] = []
    async with working(body, max_concurrency=1, max_pending=2) as work, anyio.create_task_group() as tasks:
        await work.enqueue("runs")
        await settle(work)
        await work.enqueue_many(["first", "second"])
        producer = asyncio.ensure_future(work.enqueue("cancelled"))
        await settle(work)
        tasks.start_soon(anyio.to_thread.run_sync, work.enqueue_threadsafe, "of a thread")
        await until(lambda: len(work._intake.producers) == 2)
        go.set()
        await asyncio.wait([producer])
        assert producer.cancelled()
    assert started == ["runs", "first", "second", "of a thread"]
    assert totals(work) == (4, 0, 0)


async def test_the_loops_own_thread_and_a_coordinator_not_started_are_refused() -> None:
    async def body(item: int) -> None: ...

    work = EphemeralWorkCoordinator[int](body)
    with pytest.raises(RuntimeError, match="started"):
        await anyio.to_thread.run_sync(work.enqueue_threadsafe, 1)
    async with work:
        with pytest.raises(RuntimeError, match="enqueue"):
            work.enqueue_threadsafe(1)
        assert isinstance(await anyio.to_thread.run_sync(work.enqueue_threadsafe, 1), int)
    assert totals(work) == (1, 0, 0)


async def test_where_the_loop_ran_an_item_that_comes_too_late_is_refused_as_anywhere() -> None:
    async def body(item: int) -> None: ...

    async with working(body) as work:
        pass
    with pytest.raises(CoordinatorCompletedError):
        work.enqueue_threadsafe(1)


async def test_a_thread_whose_call_the_loop_never_gets_to_is_told_as_the_block_is_left() -> None:
    async def body(item: int) -> None: ...

    calls: list[Any] = []
    refused: list[int] = []
    async with anyio.create_task_group() as tasks, working(body) as work:
        work._workers.loop = Loop(time.monotonic, calls.append, 0)
        tasks.start_soon(anyio.to_thread.run_sync, produce, work, [1], refused)
        await until(lambda: bool(calls))
    assert refused == [1]
    assert totals(work) == (0, 0, 0)


async def test_a_thread_brings_its_context_along() -> None:
    async def body(item: int) -> None:
        seen.append(name_of.get())

    def enqueue_as(name: str) -> None:
        name_of.set(name)
        work.enqueue_threadsafe(1)

    seen: list[str] = []
    async with working(body) as work:
        await anyio.to_thread.run_sync(enqueue_as, "thread")
    assert seen == ["thread"]


async def test_control_from_a_thread_that_asks_the_loop() -> None:
    """What belongs to the loop's thread works through anyio's way into it."""

    async def body(item: int) -> None: ...

    def control() -> None:
        assert anyio.from_thread.run_sync(work.try_enqueue, 1)
        anyio.from_thread.run_sync(work.complete)

    async with working(body) as work:
        await anyio.to_thread.run_sync(control)
        assert await work.drain()
    assert totals(work) == (1, 0, 0)


CONTROLS: dict[str, Callable[[Any], object]] = {
    "try_enqueue": lambda work: work.try_enqueue("x"),
    "complete": lambda work: work.complete(),
    "pause": lambda work: work.pause(),
    "resume": lambda work: work.resume(),
    "cancel": lambda work: work.cancel(),
    "cancel_operation": lambda work: work.cancel_operation(0),
    "set_max_concurrency": lambda work: work.set_max_concurrency(2),
}

KINDS: dict[str, Callable[[Callable[..., Any], EphemeralOptions], Any]] = {
    "work": EphemeralWorkCoordinator,
    "keyed": lambda body, options: EphemeralKeyedWorkCoordinator(str, body, options),
    "result": EphemeralResultCoordinator,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CONTROLS)
async def test_another_thread_is_refused_before_anything_is_touched(call: str, kind: str) -> None:
    def intrude() -> None:
        try:
            CONTROLS[call](work)
        except RuntimeError as error:
            refusals.append(str(error))

    refusals: list[str] = []
    work = KINDS[kind](Held(), EphemeralOptions(max_concurrency=1, enable_dynamic_concurrency=True))
    async with work:
        before = work.statistics()
        await anyio.to_thread.run_sync(intrude)
        assert work.statistics() == before
    assert len(refusals) == 1
    assert refusals[0].startswith(f"{call}() belongs to the thread of its loop; from another thread use")
    assert "enqueue_threadsafe()" in refusals[0]


@pytest.mark.parametrize("call", CONTROLS)
async def test_before_the_block_any_thread_may_prepare_a_coordinator(call: str) -> None:
    work = EphemeralWorkCoordinator[Any](Held(), EphemeralOptions(enable_dynamic_concurrency=True))
    await anyio.to_thread.run_sync(CONTROLS[call], work)
    work.cancel()


async def test_a_plain_body_is_told_how_to_enqueue_into_its_own_coordinator() -> None:
    def body(item: str) -> None:
        work.try_enqueue("next")

    async with EphemeralWorkCoordinator(body, EphemeralOptions(max_concurrency=1)) as work:
        await work.enqueue("first")
    [failed] = work.get_failed()
    assert "enqueue_threadsafe()" in str(failed.error)
    assert work.total_enqueued == 1


async def test_another_thread_reads_counters_and_leaves_the_window_to_the_loop() -> None:
    forgotten: list[int] = []
    options = EphemeralOptions(
        max_operation_lifetime=1e-6, on_operation_finalized=lambda operation: forgotten.append(operation.id)
    )
    async with EphemeralWorkCoordinator[int](lambda _: None, options) as work:
        operation_id = await work.enqueue(1)
        await until(lambda: work.total_completed == 1)
        ended_at = anyio.current_time()
        await until(lambda: anyio.current_time() > ended_at + 1e-5)
        seen = await anyio.to_thread.run_sync(work.statistics)
        assert (seen.total_completed, seen.tracked, forgotten) == (1, 1, [])
        assert work.statistics().tracked == 0
        assert forgotten == [operation_id]
