"""The life of a work coordinator: what is accepted runs, within bounds, in order, and ends counted."""

from __future__ import annotations

import functools
import gc
import math
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ephemeral import (
    CoordinatorFactory,
    CoordinatorNotCompletedError,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    SignalSink,
    ephemeral_for_each,
)
from ephemeral._loops import current_loop

from .work_kit import Gates, balance, settle, totals, working


class OddError(BaseException):
    """Neither an Exception nor the loop's."""


async def error_of(call: Coroutine[Any, Any, None]) -> BaseException | None:
    """Return what awaiting *call* raises; a coroutine could not return some of these itself."""
    try:
        await call
    except BaseException as error:
        return error
    return None


# Life


async def test_what_was_accepted_runs_before_the_block_is_left() -> None:
    gates = Gates()
    gates.open()
    async with working(gates, max_concurrency=2) as work:
        await work.enqueue_many(range(5))
    assert gates.ended == [0, 1, 2, 3, 4]
    assert totals(work) == (5, 0, 0)
    assert work.is_drained


async def test_items_enqueued_before_the_block_run_in_order_once_it_is_entered() -> None:
    gates = Gates()
    gates.open()
    work = EphemeralWorkCoordinator[int](gates, EphemeralOptions(max_concurrency=2, max_pending=3))
    assert await work.enqueue_many([1, 2]) == 2
    assert work.try_enqueue(3)
    assert not work.try_enqueue(4)
    await settle(work)
    assert (work.pending_count, work.active_count, gates.started) == (3, 0, [])
    async with work:
        pass
    assert gates.started == [1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), OddError("o"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(),
     StopAsyncIteration(), ExceptionGroup("mine", [ValueError()])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_an_exception_in_the_block_cancels_and_comes_out_bare(error: BaseException) -> None:
    gates = Gates()
    work = EphemeralWorkCoordinator[int](gates, EphemeralOptions(max_concurrency=2))

    async def block() -> None:
        async with work:
            await work.enqueue_many(range(5))
            await settle(work)
            raise error

    assert await error_of(block()) is error
    assert totals(work) == (0, 0, 5)
    assert sorted(gates.cancelled) == [0, 1]
    assert work.is_drained


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_leaving", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_an_order_to_end_from_a_body_cancels_the_block_and_comes_out_bare(
    fatal: type[BaseException], is_leaving: bool, waits: bool
) -> None:
    error = fatal("from a body")

    async def body(item: str) -> None:
        if item == "long":
            await anyio.sleep(100)
        if waits:
            await anyio.sleep(1)
        raise error

    work = EphemeralWorkCoordinator[str](body, EphemeralOptions(max_concurrency=2))

    async def block() -> None:
        async with work:
            await work.enqueue_many(["long", "fatal", "waiting"])
            if not is_leaving:
                await anyio.sleep(50)

    assert await error_of(block()) is error
    assert totals(work) == (0, 1, 2)
    assert anyio.current_time() == (1 if waits else 0)


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
async def test_an_order_to_end_that_a_task_group_wrapped_comes_out_bare_too(fatal: type[BaseException]) -> None:
    error = fatal("below a body")

    async def body(item: int) -> None:
        raise BaseExceptionGroup("of tasks", [ValueError(), BaseExceptionGroup("of more", [error])])

    async def block() -> None:
        async with working(body) as work:
            await work.enqueue(1)
            await anyio.sleep(50)

    assert await error_of(block()) is error
    assert anyio.current_time() == 0


@pytest.mark.parametrize("callback", ["on_sample", "on_operation_finalized", "on_signal"])
async def test_an_order_to_end_from_a_callback_comes_out_bare_with_counters_that_agree(callback: str) -> None:
    error = KeyboardInterrupt("from a callback")

    def ends(*_: object) -> None:
        raise error

    async def body(item: int, op: Any) -> None:
        op.emit("signal")

    async def block() -> None:
        nonlocal work
        async with working(body, max_concurrency=1, max_tracked_operations=1, **{callback: ends}) as work:
            await work.enqueue_many(range(4))
            await anyio.sleep(50)

    work: Any = None
    assert await error_of(block()) is error
    assert anyio.current_time() == 0
    balance(work)
    assert work.is_drained
    assert work.total_enqueued == 4


async def test_a_block_can_be_entered_once() -> None:
    async with working(Gates()) as work:
        with pytest.raises(RuntimeError, match="new one"):
            await work.__aenter__()
    with pytest.raises(RuntimeError, match="new one"):
        await work.__aenter__()


async def test_leaving_waits_for_drain_timeout_and_then_cancels() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1, drain_timeout=7) as work:
        await work.enqueue_many(range(3))
    assert anyio.current_time() == 7
    assert totals(work) == (0, 0, 3)


async def test_the_block_ends_with_no_task_left() -> None:
    gates = Gates()
    async with anyio.create_task_group() as tasks:
        async with working(gates, max_concurrency=3) as work:
            await work.enqueue_many(range(5))
            await settle(work)
            gates.open()
        names = {task.name for task in anyio.get_running_tasks()}
        assert not {name for name in names if name and name.startswith("ephemeral")}
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("body", [None, "name", 3])
def test_a_body_must_be_callable(body: Any) -> None:
    with pytest.raises(TypeError, match="body"):
        EphemeralWorkCoordinator(body)


# Plain callbacks of the loop


async def test_control_works_in_a_plain_callback_of_the_loop() -> None:
    gates = Gates()
    soon = current_loop().call_soon_threadsafe
    async with working(gates, max_concurrency=1, enable_dynamic_concurrency=True) as work:
        steps: list[tuple[Callable[[], Any], Callable[[], bool]]] = [
            (lambda: [work.try_enqueue(item) for item in range(5)], lambda: gates.active == [0]),
            (work.pause, lambda: work.is_paused),
            (lambda: work.set_max_concurrency(3), lambda: gates.active == [0]),
            (work.resume, lambda: gates.active == [0, 1, 2]),
            (lambda: work.cancel_operation(gates.operations[1].id), lambda: gates.active == [0, 2, 3]),
            (work.complete, lambda: work.is_completed),
            (work.cancel, lambda: work.is_drained),
        ]
        for step, holds in steps:
            soon(step)
            await settle(work)
            assert holds(), step
    assert totals(work) == (0, 0, 5)


# Drain


async def test_drain_needs_complete_first() -> None:
    async with working(Gates()) as work:
        with pytest.raises(CoordinatorNotCompletedError):
            await work.drain()


async def test_drain_inside_an_own_body_is_refused_and_elsewhere_is_not() -> None:
    async def body(item: str) -> None:
        if item == "inner":
            return
        work.complete()
        for call in (work.drain, in_a_task):
            with pytest.raises(RuntimeError, match="wait for itself"):
                await call()
        async with working(body) as inner:
            await inner.enqueue("inner")
            inner.complete()
            assert await inner.drain()
        done.append(item)

    async def in_a_task() -> None:
        errors: list[BaseException] = []

        async def drain() -> None:
            try:
                await work.drain()
            except RuntimeError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
        raise errors[0]

    done: list[str] = []
    async with working(body) as work:
        await work.enqueue("outer")
    assert done == ["outer"]


async def test_a_task_that_outlives_its_body_may_drain() -> None:
    async def body(item: str) -> None:
        tasks.start_soon(outlive)

    async def outlive() -> None:
        await settle(work)
        work.complete()
        drained.append(await work.drain())

    drained: list[bool] = []
    async with anyio.create_task_group() as tasks, working(body) as work:
        await work.enqueue("starts it")
        await anyio.sleep(1)
        assert drained == [True]


async def test_drain_gives_up_after_its_timeout_and_may_be_repeated() -> None:
    gates = Gates()
    async with working(gates) as work:
        await work.enqueue(1)
        work.complete()
        assert not await work.drain(timeout=2)
        assert anyio.current_time() == 2
        assert not await work.drain(timeout=0)
        gates.open()
        assert await work.drain()
        assert await work.drain(timeout=0)
        with pytest.raises(ValueError, match="timeout"):
            await work.drain(timeout=-1)


async def test_drain_after_cancel_ends() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1) as work:
        await work.enqueue_many(range(3))
        await settle(work)
        work.cancel()
        assert (work.pending_count, work.is_completed) == (0, True)
        assert await work.drain()
        assert totals(work) == (0, 0, 3)


async def test_a_paused_coordinator_resumes_to_drain_and_stays_so() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1) as work:
        work.pause()
        await work.enqueue_many(range(3))
        work.complete()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.drain)
            await settle(work)
            assert not work.is_paused
            work.pause()
            assert not work.is_paused
            gates.open()
        assert totals(work) == (3, 0, 0)


async def test_a_paused_coordinator_resumes_when_its_block_is_left() -> None:
    gates = Gates()
    gates.open()
    async with working(gates) as work:
        work.pause()
        await work.enqueue_many(range(3))
    assert totals(work) == (3, 0, 0)


async def test_cancel_before_the_block_cancels_what_waits() -> None:
    gates = Gates()
    work = EphemeralWorkCoordinator[int](gates)
    await work.enqueue_many(range(3))
    work.cancel()
    assert totals(work) == (0, 0, 3)
    async with work:
        pass
    assert gates.started == []


async def test_every_kind_of_callback_may_raise_and_drain_ends() -> None:
    def bad(*_: object) -> None:
        seen.append(1)
        balance(work)
        raise OddError

    async def body(item: int, op: Any) -> None:
        op.emit("signal")
        if item == 1:
            raise ValueError

    seen: list[int] = []
    options = {"on_sample": bad, "on_operation_finalized": bad, "on_signal": bad}
    async with working(body, max_tracked_operations=1, **options) as work:
        await work.enqueue_many(range(4))
    assert totals(work) == (3, 1, 0)
    assert work.statistics().callback_errors == len(seen) == 4 + 3 + 4


async def test_counters_agree_wherever_they_are_read() -> None:
    async def body(item: int) -> None:
        balance(work)
        await anyio.lowlevel.checkpoint()
        balance(work)
        if item % 3 == 0:
            raise ValueError
        if item % 3 == 1:
            await anyio.sleep(math.inf)

    options = {"on_sample": lambda window: balance(work), "on_operation_finalized": lambda seen: balance(work)}
    async with working(body, max_concurrency=4, max_pending=5, max_tracked_operations=2, **options) as work:
        for item in range(12):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work.enqueue, item)
                await settle(work)
                for running in work.get_running():
                    work.cancel_operation(running.id)
                    balance(work)
    assert totals(work) == (4, 4, 4)
    assert work.statistics().callback_errors == 0


async def test_callbacks_may_use_the_coordinator() -> None:
    def on_sample(window: Any) -> None:
        sizes.append(len(window))
        if work.total_completed < 5:
            work.try_enqueue(work.total_enqueued)
        else:
            work.cancel()

    sizes: list[int] = []
    gates = Gates()
    gates.open()
    async with working(gates, max_concurrency=1, on_sample=on_sample) as work:
        await work.enqueue(0)
        await settle(work)
    assert (totals(work), sizes) == ((5, 0, 0), [1, 2, 3, 4, 5])
    assert work.statistics().callback_errors == 0


async def test_repr_tells_how_it_stands() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=1, coordinator_id="resize") as work:
        await work.enqueue_many([1, 2])
        await settle(work)
        work.pause()
        assert repr(work) == (
            "<EphemeralWorkCoordinator 'resize' open paused: "
            "1 pending, 1 active, 0 completed, 0 failed, 0 skipped, 0 cancelled>"
        )
        gates.open()
    assert "drained" in repr(work)


# Before the block


async def test_drain_before_the_block_names_the_way_out_instead_of_waiting_for_ever() -> None:
    work = EphemeralWorkCoordinator[int](Gates())
    await work.enqueue(1)
    work.complete()
    with pytest.raises(RuntimeError, match=r"drain\(\) would wait for ever: .* has not started.*enter its block"):
        await work.drain()
    assert work.pending_count == 1
    work.cancel()
    assert await work.drain()


async def test_drain_before_the_block_returns_if_there_is_nothing_to_wait_for() -> None:
    work = EphemeralWorkCoordinator[int](Gates())
    work.complete()
    assert await work.drain()


async def test_waiting_items_that_are_lost_with_a_coordinator_never_started_are_told() -> None:
    work = EphemeralWorkCoordinator[int](Gates(), EphemeralOptions(coordinator_id="letters"))
    await work.enqueue_many([1, 2])
    del work
    with pytest.warns(ResourceWarning, match="'letters' was never started, and 2 waiting items are lost"):
        gc.collect()


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_coordinator_that_is_dropped_before_its_block_is_let_go_of_by_its_sink(is_shared: bool) -> None:
    sink = SignalSink() if is_shared else None
    trace = weakref.ref(EphemeralWorkCoordinator[int](Gates(), EphemeralOptions(signals=sink)))
    gc.collect()
    assert trace() is None
    assert sink is None or sink.statistics().listeners == 0


async def test_a_coordinator_with_nothing_to_lose_is_dropped_in_silence() -> None:
    EphemeralWorkCoordinator[int](Gates())
    cancelled = EphemeralWorkCoordinator[int](Gates())
    await cancelled.enqueue(1)
    cancelled.cancel()
    del cancelled
    with pytest.raises(TypeError):
        EphemeralWorkCoordinator[int](None)  # type: ignore[arg-type]
    gc.collect()  # a warning would be an error here


# Mistakes


async def body(item: int) -> None: ...


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 4}, 4])
async def test_options_that_are_none_are_refused_by_name(options: Any) -> None:
    factory = CoordinatorFactory()
    for make in (
        lambda: EphemeralWorkCoordinator(body, options),
        lambda: EphemeralKeyedWorkCoordinator(str, body, options),
        lambda: EphemeralResultCoordinator(body, options),
        lambda: factory.add_work("name", body, options),
    ):
        with pytest.raises(TypeError, match=r"options must be EphemeralOptions\(\.\.\.\) or None, not "):
            make()
    with pytest.raises(TypeError, match="options must be EphemeralOptions"):
        await ephemeral_for_each([1], body, options)


@pytest.mark.parametrize(
    "misfit",
    [lambda: 3, lambda item, op, more: 3, lambda *, item: 3, lambda item, *, op: 3, functools.partial(body, 1)],
)
def test_a_function_that_takes_no_item_is_refused_as_the_coordinator_is_made(misfit: Any) -> None:
    for make in (
        lambda: EphemeralWorkCoordinator(misfit),
        lambda: EphemeralKeyedWorkCoordinator(str, misfit),
        lambda: EphemeralResultCoordinator(misfit),
    ):
        with pytest.raises(TypeError, match=r"a body takes one item, body\(item\), or its operation too"):
            make()
