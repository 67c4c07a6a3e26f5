"""The result coordinator: what bodies return, for those who wait and for the window; what they raise, likewise."""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralOperationResultSnapshot,
    EphemeralOperationSnapshot,
    EphemeralOptions,
    EphemeralResultCoordinator,
    Operation,
    OperationCancelledError,
    SignalSink,
    UnknownOperationError,
)

from .work_kit import Gates, by_scope, by_task, cut, cut_everywhere, settle, totals

Results = EphemeralResultCoordinator[Any, Any]


class Doubling(Gates):
    """Gates that return twice their item."""

    async def __call__(self, item: Any, op: Operation) -> Any:
        await super().__call__(item, op)
        return item * 2


@asynccontextmanager
async def returning(body: Callable[..., Any], **options: Any) -> AsyncGenerator[Results]:
    async with EphemeralResultCoordinator[Any, Any](body, EphemeralOptions(**options)) as results:
        yield results


async def double(item: Any) -> Any:
    return item * 2


async def fail_deep(item: Any) -> Any:
    def deep(item: Any) -> None:
        raise ValueError("deep")

    await anyio.lowlevel.checkpoint()
    try:
        raise KeyError("cause")
    except KeyError:
        deep(item)


# Results


@pytest.mark.parametrize("waits", [False, True])
async def test_submit_returns_what_the_body_returns(waits: bool) -> None:
    async def body(item: int, op: Operation) -> tuple[int, int]:
        if waits:
            await anyio.sleep(1)
        return item * 2, op.id

    async with returning(body) as results:
        value, operation_id = await results.submit(21)
        assert value == 42
        assert results.try_get_operation(operation_id) is not None
        assert await results.wait_for_result(operation_id) == (42, operation_id)


@pytest.mark.real_time
async def test_plain_functions_give_results_too() -> None:
    def body(item: int) -> int:
        return item * 2

    async with returning(body) as results:
        assert await results.submit(21) == 42


async def test_a_result_may_be_waited_for_before_during_and_after_its_run_by_many() -> None:
    gates = Doubling()
    got: list[int] = []

    async def wait(operation_id: int) -> None:
        got.append(await results.wait_for_result(operation_id))

    async with returning(gates, max_concurrency=1) as results, anyio.create_task_group() as tasks:
        await results.enqueue(1)
        second = await results.enqueue(2)
        tasks.start_soon(wait, second)  # it waits
        await settle(results)
        gates.let_go(1)
        await settle(results)
        tasks.start_soon(wait, second)  # it runs
        await settle(results)
        gates.let_go(2)
        await settle(results)
        await wait(second)  # it has ended
    assert got == [4, 4, 4]


async def test_the_window_shows_results_and_can_leave_them_out() -> None:
    gates = Doubling()
    gates.errors[2] = ValueError("failed")
    async with returning(gates, max_concurrency=3) as results:
        await results.enqueue_many([1, 2, 3])
        await settle(results)
        gates.let_go(1, 2)
        await settle(results)
        done, failed, running = results.get_snapshot()
        assert (done.result, done.has_result) == (2, True)
        assert (failed.result, failed.has_result, failed.is_faulted) == (None, False, True)
        assert (running.result, running.has_result, running.completed) == (None, False, None)
        assert results.get_results() == (2,)
        assert results.get_successful() == results.get_completed() == (done,)
        assert results.get_failed() == (failed,)
        assert results.get_running() == (running,)
        assert results.try_get_operation(done.id) == done
        assert all(type(seen) is EphemeralOperationResultSnapshot for seen in results.get_snapshot())
        base = results.get_base_snapshot()
        assert all(type(seen) is EphemeralOperationSnapshot for seen in base)
        assert [seen.id for seen in base] == [done.id, failed.id, running.id]
        gates.open()


async def test_a_body_that_returns_none_has_a_result_all_the_same() -> None:
    async def body(item: int) -> None:
        pass

    async with returning(body) as results:
        assert await results.submit(1) is None
        [seen] = results.get_snapshot()
        assert (seen.result, seen.has_result) == (None, True)


async def test_callbacks_see_results() -> None:
    sampled: list[Any] = []
    finalized: list[Any] = []
    options: dict[str, Any] = {"on_sample": lambda window: sampled.append([seen.result for seen in window])}
    options["on_operation_finalized"] = lambda seen: finalized.append(seen.result)
    async with returning(double, max_concurrency=1, max_tracked_operations=1, **options) as results:
        await results.enqueue_many([1, 2])
    assert sampled == [[2], [4]]
    assert finalized == [2]


async def test_a_waiter_gets_its_result_although_the_window_has_no_room_for_it() -> None:
    async with returning(double, max_tracked_operations=1) as results:
        async with anyio.create_task_group() as tasks:
            got: dict[int, int] = {}

            async def submit(item: int) -> None:
                got[item] = await results.submit(item)

            for item in range(20):
                tasks.start_soon(submit, item)
        assert got == {item: item * 2 for item in range(20)}
        assert len(results.get_snapshot()) == 1


async def test_a_submission_that_waited_for_room_gets_its_result_even_if_another_task_let_it_in() -> None:
    gates = Doubling()
    got: list[int] = []

    async def submit(item: int) -> None:
        got.append(await results.submit(item))

    options = {"max_concurrency": 1, "max_pending": 1, "max_tracked_operations": 1}
    async with returning(gates, **options) as results, anyio.create_task_group() as tasks:
        for item in range(8):
            tasks.start_soon(submit, item)
        await settle(results)
        gates.open()
    assert sorted(got) == [item * 2 for item in range(8)]


# Failures


async def test_submit_raises_what_the_body_raised_with_its_traceback() -> None:
    error = ValueError("the body's")

    async def body(item: int) -> None:
        await anyio.sleep(1)
        raise error

    async with returning(body) as results:
        with pytest.raises(ValueError, match="the body's") as caught:
            await results.submit(1)
        assert caught.value is error
        functions = [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert functions[-1] == "body"
        assert not {"_serve", "resume", "keep_result"} & set(functions), "those of a worker that lives on"
        [seen] = results.get_failed()
        assert repr(seen.error) == repr(error)
        assert seen.error is not None
        assert seen.error.__traceback__ is None
        assert "in body\n" in f"{seen.error_trace}\n"


async def test_every_waiter_gets_the_traceback() -> None:
    gates = Doubling()
    gates.errors[1] = ValueError("failed")
    seen: list[list[str]] = []

    async def wait(operation_id: int) -> None:
        try:
            await results.wait_for_result(operation_id)
        except ValueError as error:
            seen.append([frame.name for frame in traceback.extract_tb(error.__traceback__)])

    async with returning(gates) as results, anyio.create_task_group() as tasks:
        operation_id = await results.enqueue(1)
        for _ in range(3):
            tasks.start_soon(wait, operation_id)
        await settle(results)
        gates.let_go(1)
    assert len(seen) == 3
    assert all(functions[0] == "wait" and functions[-1] == "__call__" for functions in seen)
    assert len({len(functions) for functions in seen}) == 1, "no waiter adds to the traceback of the next"


async def test_who_asks_after_the_end_gets_the_error_too_and_leaves_the_windows_own_alone() -> None:
    async with returning(fail_deep) as results:
        operation_id = await results.enqueue(1)
        await settle(results)
        for _ in range(2):
            with pytest.raises(ValueError, match="deep") as caught:
                await results.wait_for_result(operation_id)
            assert isinstance(caught.value.__context__, KeyError)
        [seen] = results.get_failed()
        assert seen.error is not None
        assert seen.error is not caught.value
        assert seen.error.__traceback__ is None


@pytest.mark.parametrize(
    ("end", "runs"),
    [("cancel", True), ("cancel", False), ("cancel_operation", True), ("cancel_operation", False), ("itself", True)],
)
async def test_a_cancelled_item_is_an_error_of_its_own(end: str, runs: bool) -> None:
    gates = Doubling()
    raised: list[OperationCancelledError] = []

    async def submit() -> None:
        with pytest.raises(OperationCancelledError) as caught:
            await results.submit(2)
        raised.append(caught.value)

    async with returning(gates, max_concurrency=1) as results, anyio.create_task_group() as tasks:
        if not runs:
            await results.enqueue(1)
        tasks.start_soon(submit)
        await settle(results)
        if end == "cancel":
            results.cancel()
        elif end == "cancel_operation":
            [operation] = gates.operations.values() if runs else results._line
            assert results.cancel_operation(operation.id)
        else:
            gates.operations[2].interrupt()
        await settle(results)
        assert len(raised) == 1
        gates.open()


async def test_a_result_of_work_that_swallowed_its_cancellation_is_not_given() -> None:
    gates = Doubling()
    gates.stubborn.add(1)
    async with returning(gates) as results:
        operation_id = await results.enqueue(1)
        await settle(results)
        assert results.cancel_operation(operation_id)
        with pytest.raises(OperationCancelledError, match=str(operation_id)):
            await results.wait_for_result(operation_id)
        [seen] = results.get_snapshot()
        assert (seen.result, seen.has_result, seen.is_cancelled) == (None, False, True)


async def test_a_skipped_item_is_reported_to_who_submitted_it() -> None:
    sink = SignalSink()
    async with returning(double, signals=sink, cancel_on_signals="stop") as results:
        sink.raise_signal("stop")
        with pytest.raises(OperationCancelledError):
            await results.submit(1)
        assert results.total_skipped == 1


async def test_an_order_to_end_comes_out_of_the_block_and_of_no_waiter() -> None:
    outcomes: list[BaseException] = []

    async def body(item: int) -> None:
        await anyio.sleep(1)
        raise KeyboardInterrupt

    async def submit() -> None:
        try:
            await results.submit(1)
        except OperationCancelledError as error:
            outcomes.append(error)

    results = EphemeralResultCoordinator[int, None](body)
    async with anyio.create_task_group() as tasks:

        async def whole_block() -> None:
            async with results:
                tasks.start_soon(submit)
                await anyio.sleep(5)

        with pytest.raises(KeyboardInterrupt):
            await whole_block()
    assert len(outcomes) == 1


# Waiting


async def test_an_id_that_is_not_here_is_unknown() -> None:
    async with returning(double, max_tracked_operations=1) as results:
        first = await results.enqueue(1)
        await results.submit(2)
        for operation_id in (first, 12345):
            with pytest.raises(UnknownOperationError, match=str(operation_id)):
                await results.wait_for_result(operation_id)


async def test_a_submission_that_another_task_let_in_may_be_cancelled_before_its_own_goes_on() -> None:
    async with returning(double) as results:
        results.pause()
        operation_id = await results.enqueue(1)
        [operation] = results._line
        assert results.cancel_operation(operation_id)
        # As submit finds it, when its task is resumed later than the one that admitted its item.
        with pytest.raises(OperationCancelledError):
            await results._answer_of(operation)  # type: ignore[arg-type]


async def test_waiting_may_be_limited_and_the_operation_goes_on() -> None:
    gates = Doubling()
    async with returning(gates) as results:
        operation_id = await results.enqueue(1)
        with pytest.raises(TimeoutError, match=rf"{operation_id} has not ended after 2 s"):
            await results.wait_for_result(operation_id, timeout=2)
        assert anyio.current_time() == 2
        gates.open()
        assert await results.wait_for_result(operation_id, timeout=2) == 2
        assert await results.wait_for_result(operation_id, timeout=0) == 2
        with pytest.raises(ValueError, match="timeout"):
            await results.wait_for_result(operation_id, timeout=-1)


async def test_a_body_cannot_wait_for_itself() -> None:
    async def body(item: int, op: Operation) -> None:
        await results.wait_for_result(op.id)

    async with returning(body) as results:
        with pytest.raises(RuntimeError, match="its own result"):
            await results.submit(1)


async def test_submit_after_complete_is_refused() -> None:
    async with returning(double) as results:
        results.complete()
        with pytest.raises(CoordinatorCompletedError):
            await results.submit(1)


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
@pytest.mark.parametrize("is_full", [False, True])
async def test_a_submit_that_is_cancelled_leaves_no_trace_or_an_item_that_runs(
    how: Callable[[anyio.CancelScope], None], is_full: bool
) -> None:
    async def scenario(at: int) -> bool:
        gates = Doubling()
        async with returning(gates, max_concurrency=1, max_pending=1) as results:
            await results.enqueue(1)
            await settle(results)
            if is_full:
                await results.enqueue(2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_later, results, gates)
                reached = await cut(lambda: results.submit(3), at, how)
            await settle(results)
            before = 2 if is_full else 1
            accepted = results.total_enqueued - before
            assert accepted == (0 if is_full and at == 0 and reached else 1)
            assert (3 in gates.ended) is bool(accepted)
            assert totals(results) == (before + accepted, 0, 0)
            assert await results.submit(4) == 8
        return reached

    async def open_later(results: Results, gates: Doubling) -> None:
        await settle(results)
        gates.open()

    assert await cut_everywhere(scenario) > 0


# Privacy


class Thing:
    def __mul__(self, other: int) -> int:
        return other


async def fails_after_a_while(item: Thing) -> None:
    await fail_deep(item)


@pytest.mark.parametrize("body", [double, fail_deep, fails_after_a_while])
async def test_an_item_that_was_waited_for_dies_once_its_waiter_is_served(body: Callable[..., Any]) -> None:
    async def submit_one() -> weakref.ref[Thing]:
        thing = Thing()
        reference = weakref.ref(thing)
        with suppress(ValueError):
            await results.submit(thing)
        return reference

    async with returning(body) as results:
        gc.collect()
        gc.disable()
        try:
            reference = await submit_one()
            assert results.total_completed + results.total_failed == 1
            assert reference() is None
        finally:
            gc.enable()


async def test_a_waiter_that_gave_up_keeps_no_error_alive() -> None:
    gates = Doubling()
    gates.errors[1] = ValueError("failed")
    async with returning(gates) as results:
        operation_id = await results.enqueue(1)
        with pytest.raises(TimeoutError):
            await results.wait_for_result(operation_id, timeout=1)
        gates.open()
        await settle(results)
        [seen] = results.get_failed()
        assert seen.error is not None
        assert seen.error.__traceback__ is None


async def test_who_asks_for_a_result_before_the_block_is_told_to_enter_it() -> None:
    async def double(item: int) -> int:
        return item * 2

    results = EphemeralResultCoordinator[int, int](double)
    with pytest.raises(RuntimeError, match=r"submit\(\) would wait for ever: .* enter its block"):
        await results.submit(1)
    assert results.total_enqueued == 0
    early = await results.enqueue(2)
    with pytest.raises(RuntimeError, match=r"wait_for_result\(\) would wait for ever: .* enter its block"):
        await results.wait_for_result(early)
    async with results:
        assert await results.wait_for_result(early) == 4
        assert await results.submit(1) == 2


async def test_who_asks_for_an_item_that_was_cancelled_before_it_began_is_told_that_this_may_be_why() -> None:
    results = Results(Gates())
    never = await results.enqueue(1)
    results.cancel_operation(never)
    with pytest.raises(UnknownOperationError, match=f"operation {never} .* was cancelled or skipped before it began"):
        await results.wait_for_result(never)
