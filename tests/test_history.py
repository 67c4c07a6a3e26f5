"""The window of operations: bounded exactly, in order of start, and told when it forgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from ephemeral import EphemeralOperationSnapshot, SignalSink

from .work_kit import Gates, Work, settle, working


def items_of(work: Work, gates: Gates) -> list[Any]:
    """Return the items of the operations in the window, as the test knows them."""
    names = {operation.id: item for item, operation in gates.operations.items()}
    return [names[seen.id] for seen in work.get_snapshot()]


def opened() -> Gates:
    gates = Gates()
    gates.open()
    return gates


async def test_by_number_the_one_that_ended_first_goes_first() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=4, max_tracked_operations=3) as work:
        await work.enqueue_many("abcd")
        await settle(work)
        for item, left in [("c", "abd"), ("a", "bd" + ""), ("b", "bd"), ("d", "abd")]:
            gates.let_go(item)
            await settle(work)
            assert len(items_of(work, gates)) <= 3, left
        assert items_of(work, gates) == ["a", "b", "d"]


async def test_running_operations_exceed_the_bound_and_are_never_forgotten() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=5, max_tracked_operations=2) as work:
        await work.enqueue_many("abcde")
        await settle(work)
        assert items_of(work, gates) == list("abcde")
        gates.let_go("b")
        await settle(work)
        assert items_of(work, gates) == list("acde")
        gates.open()
        await settle(work)
        assert len(work.get_snapshot()) == 2


async def test_by_time_an_operation_lives_for_its_lifetime_in_a_quiet_coordinator() -> None:
    async with working(opened(), max_operation_lifetime=10) as work:
        operation = await work.enqueue(1)
        await settle(work)
        await anyio.sleep(10)
        assert work.try_get_operation(operation) is not None
        assert work.statistics().tracked == 1
        await anyio.sleep(0.001)
        assert work.try_get_operation(operation) is None
        assert (work.get_snapshot(), work.get_completed(), work.statistics().tracked) == ((), (), 0)


@pytest.mark.parametrize(
    "read",
    [
        lambda work, operation: len(work.get_snapshot()), lambda work, operation: len(work.get_completed()),
        lambda work, operation: work.try_get_operation(operation) is not None,
        lambda work, operation: work.statistics().tracked, lambda work, operation: work.pin(operation),
        lambda work, operation: work.unpin(operation), lambda work, operation: work.evict(operation),
        lambda work, operation: work.count_signals(), lambda work, operation: work.has_signal("done"),
    ],
)  # fmt: skip
async def test_each_kind_of_read_is_exact(read: Callable[[Work, int], int]) -> None:
    async def body(item: int, op: Any) -> None:
        op.emit("done")

    async with working(body, max_operation_lifetime=10) as work:
        first = await work.enqueue(1)
        await settle(work)
        await anyio.sleep(10)
        assert read(work, first)
        second = await work.enqueue(2)
        await settle(work)
        await anyio.sleep(11)
        assert not read(work, second)


async def test_pinned_operations_stay_and_age_from_their_end_when_unpinned() -> None:
    gates = opened()
    async with working(gates, max_tracked_operations=2, max_operation_lifetime=10) as work:
        pinned = await work.enqueue("pinned")
        await settle(work)
        assert work.pin(pinned)
        assert work.pin(pinned)
        await work.enqueue_many("abc")
        await settle(work)
        assert items_of(work, gates) == ["pinned", "c"]
        await anyio.sleep(100)
        (seen,) = work.get_snapshot()
        assert (seen.id, seen.is_pinned) == (pinned, True)
        assert not work.evict(pinned)
        assert work.unpin(pinned)
        assert work.get_snapshot() == ()
        assert not work.unpin(pinned)
        assert not work.pin(pinned)


async def test_unpinning_puts_an_operation_back_in_its_turn() -> None:
    gates = opened()
    async with working(gates, max_concurrency=1, max_tracked_operations=3) as work:
        ids: list[int] = []
        for item in "abc":
            ids.append(await work.enqueue(item))
            await settle(work)
            await anyio.sleep(1)
        work.pin(ids[0])
        work.unpin(ids[0])
        assert work.try_get_operation(ids[0]) is not None
        await work.enqueue("d")
        await settle(work)
        assert items_of(work, gates) == ["b", "c", "d"]


async def test_a_running_operation_can_be_pinned_and_not_evicted() -> None:
    gates = Gates()
    async with working(gates, max_tracked_operations=1) as work:
        operation = await work.enqueue("a")
        await settle(work)
        assert not work.evict(operation)
        assert work.pin(operation)
        gates.open()
        await work.enqueue_many("bc")
        await settle(work)
        assert items_of(work, gates) == ["a"]
        assert work.unpin(operation)
        assert items_of(work, gates) == ["a"]


async def test_evict_forgets_ended_operations_alone() -> None:
    async with working(opened()) as work:
        operation = await work.enqueue("a")
        assert not work.evict(operation)
        await settle(work)
        assert work.evict(operation)
        assert not work.evict(operation)
        assert work.get_snapshot() == ()
        assert (work.total_completed, work.total_enqueued) == (1, 1)


async def test_each_operation_is_finalized_once_with_what_it_was() -> None:
    finalized: list[EphemeralOperationSnapshot] = []
    gates = opened()
    gates.errors["b"] = ValueError("b")
    async with working(gates, max_tracked_operations=2, on_operation_finalized=finalized.append) as work:
        ids = [await work.enqueue(item) for item in "abcd"]
        await settle(work)
        assert [seen.id for seen in finalized] == ids[:2]
        assert [seen.is_faulted for seen in finalized] == [False, True]
        work.evict(ids[3])
        await anyio.sleep(301)
        assert work.get_snapshot() == ()
    assert [seen.id for seen in finalized] == [ids[0], ids[1], ids[3], ids[2]]


async def test_the_end_of_the_block_finalizes_what_has_grown_too_old_without_a_read() -> None:
    finalized: list[int] = []

    def note(seen: EphemeralOperationSnapshot) -> None:
        finalized.append(seen.id)

    async with working(opened(), max_operation_lifetime=1, on_operation_finalized=note) as work:
        old = await work.enqueue(1)
        await anyio.sleep(5)
        assert finalized == []
    assert finalized == [old]


async def test_an_error_that_is_finalized_or_sampled_has_no_traceback_already() -> None:
    told: list[Any] = []

    def finalized(seen: EphemeralOperationSnapshot) -> None:
        assert seen.error is not None
        told.append(seen.error.__traceback__)
        assert "Traceback" in str(seen.error_trace)

    async def body(item: int) -> None:
        raise ValueError

    options = {"on_sample": lambda window: [finalized(seen) for seen in window], "on_operation_finalized": finalized}
    async with working(body, max_tracked_operations=1, **options) as work:
        await work.enqueue_many(range(3))
    assert told == [None] * 5
    assert work.statistics().callback_errors == 0


async def test_callbacks_may_come_back_into_the_window() -> None:
    def finalized(seen: EphemeralOperationSnapshot) -> None:
        told.append(seen.id)
        assert work.try_get_operation(seen.id) is None
        assert not work.evict(seen.id)
        for other in work.get_completed():
            work.evict(other.id)

    told: list[int] = []
    async with working(opened(), max_concurrency=1, max_tracked_operations=2, on_operation_finalized=finalized) as work:
        ids = [await work.enqueue(item) for item in range(5)]
    assert sorted(told) == ids[: len(told)]
    assert len(told) == len(set(told)) >= 3
    assert work.statistics().callback_errors == 0


async def test_on_sample_is_given_the_window_after_each_end() -> None:
    windows: list[list[bool]] = []

    def sample(window: tuple[EphemeralOperationSnapshot, ...]) -> None:
        windows.append([seen.completed is not None for seen in window])

    gates = Gates()
    async with working(gates, max_concurrency=2, on_sample=sample) as work:
        await work.enqueue_many("ab")
        await settle(work)
        gates.let_go("b")
        await settle(work)
        gates.let_go("a")
    assert windows == [[False, True], [True, True]]


@pytest.mark.parametrize("has_sink", [False, True])
async def test_times_are_aware_and_durations_right(has_sink: bool) -> None:
    async def body(seconds: float) -> None:
        await anyio.sleep(seconds)

    before = datetime.now(UTC)
    await anyio.sleep(1000)
    options = {"signals": SignalSink()} if has_sink else {}
    async with working(body, max_concurrency=1, **options) as work:
        await work.enqueue_many([2.5, 4.0])
        await anyio.sleep(3.5)
        first, running = work.get_snapshot()
        assert (first.duration, running.duration, running.completed) == (2.5, None, None)
        assert first.completed is not None
        assert first.completed - first.started == timedelta(seconds=2.5)
        assert running.started == first.completed
        assert first.started.tzinfo is UTC
        assert before <= first.started <= datetime.now(UTC)
        assert [seen.id for seen in work.get_running()] == [running.id]


async def test_the_window_outlives_the_block() -> None:
    async with working(opened()) as work:
        operation = await work.enqueue("a")
    seen = work.try_get_operation(operation)
    assert seen is not None
    assert seen.completed is not None
    await anyio.sleep(301)
    assert work.get_snapshot() == ()


async def test_a_snapshot_is_frozen_and_of_its_moment() -> None:
    gates = Gates()
    async with working(gates) as work:
        operation = await work.enqueue("a")
        await settle(work)
        seen = work.try_get_operation(operation)
        assert seen is not None
        with pytest.raises(AttributeError):
            seen.is_pinned = True  # type: ignore[misc]
        work.pin(operation)
        gates.open()
        await settle(work)
        assert (seen.completed, seen.is_pinned) == (None, False)
