"""The way in and the limits: who is admitted, in which order items start, how many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ephemeral import CoordinatorCompletedError

from .work_kit import Gates, Work, settle, totals, working

# Taking items


async def test_after_complete_nothing_is_taken() -> None:
    gates = Gates()
    async with working(gates) as work:
        await work.enqueue(1)
        work.complete()
        work.complete()
        assert work.is_completed
        with pytest.raises(CoordinatorCompletedError):
            await work.enqueue(2)
        with pytest.raises(CoordinatorCompletedError):
            await work.enqueue_many([2])
        assert not work.try_enqueue(2)
        gates.open()
    assert gates.started == [1]


@pytest.mark.parametrize("end", [Work.complete, Work.cancel], ids=["complete", "cancel"])
async def test_producers_that_wait_as_intake_ends_are_told(end: Callable[[Work], None]) -> None:
    gates = Gates()
    refused: list[int] = []

    async def produce(item: int) -> None:
        try:
            await work.enqueue(item)
        except CoordinatorCompletedError:
            refused.append(item)

    async with working(gates, max_concurrency=1, max_pending=1) as work:
        await work.enqueue(0)
        await settle(work)
        await work.enqueue(1)
        async with anyio.create_task_group() as tasks:
            for item in (2, 3, 4):
                tasks.start_soon(produce, item)
            await settle(work)
            end(work)
        assert sorted(refused) == [2, 3, 4]
        assert work.total_enqueued == 2
        gates.open()


async def test_room_granted_as_intake_ends_admits_nobody() -> None:
    """The body of the item that made room completes the coordinator before the producer has resumed."""
    gates = Gates()

    async def body(item: int, op: Any) -> None:
        if item == 1:
            work.complete()
        await gates(item, op)

    async with working(body, max_concurrency=1, max_pending=1) as work:
        await work.enqueue(0)
        await settle(work)
        await work.enqueue(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_refusal, work)
            await settle(work)
            gates.open()
        assert work.total_enqueued == 2


async def expect_refusal(work: Work) -> None:
    with pytest.raises(CoordinatorCompletedError):
        await work.enqueue("late")


async def test_producers_are_admitted_and_items_start_in_order_of_arrival() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=2, max_pending=2) as work:
        async with anyio.create_task_group() as tasks:
            for item in range(20):
                tasks.start_soon(work.enqueue, item)
                await settle(work)
            gates.open()
        await settle(work)
        assert gates.started == list(range(20))
        assert gates.most_active == 2


async def test_a_newcomer_does_not_overtake_a_producer_that_got_room_in_this_turn() -> None:
    gates = Gates()
    gates.open()

    async def body(item: str, op: Any) -> None:
        if item == "b":  # its start has made more room than the one producer needs, and that one has not resumed yet
            await work.enqueue("newcomer")
        await gates(item, op)

    async with anyio.create_task_group() as tasks, working(body, max_concurrency=1, max_pending=2) as work:
        work.pause()
        await work.enqueue_many(["a", "b"])
        tasks.start_soon(work.enqueue, "waited")
        await settle(work)
        work.resume()
        await settle(work)
        assert gates.started == ["a", "b", "waited", "newcomer"]


async def test_ids_rise_in_order_of_arrival_and_name_the_operation() -> None:
    gates = Gates()
    gates.open()
    async with working(gates) as work:
        ids = [await work.enqueue(item) for item in range(3)]
        await settle(work)
        assert ids == sorted(set(ids))
        assert [gates.operations[item].id for item in range(3)] == ids
        assert [seen.id for seen in work.get_snapshot()] == ids


# Limits


async def test_a_limit_of_8_then_2_then_4_gives_4_under_backlog() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=8, enable_dynamic_concurrency=True) as work:
        await work.enqueue_many(range(40))
        await settle(work)
        assert len(gates.active) == 8
        work.set_max_concurrency(2)
        for item in range(8):
            gates.let_go(item)
            await settle(work)
            assert len(gates.active) == max(2, 7 - item)
        work.set_max_concurrency(4)
        await settle(work)
        assert (len(gates.active), work.current_max_concurrency) == (4, 4)
        for item in list(gates.active) * 2:
            gates.let_go(item)
            await settle(work)
            assert len(gates.active) == 4
        gates.open()
    assert totals(work) == (40, 0, 0)
    assert gates.started == list(range(40))


async def test_the_limit_may_change_faster_than_anything_ends() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=8, enable_dynamic_concurrency=True) as work:
        await work.enqueue_many(range(20))
        await settle(work)
        for limit in (2, 4, 1, 3):
            work.set_max_concurrency(limit)
        gates.let_go(*range(8))
        await settle(work)
        assert len(gates.active) == 3
        gates.open()


async def test_the_limit_changes_if_the_options_say_so() -> None:
    async with working(Gates()) as work:
        with pytest.raises(RuntimeError, match="enable_dynamic_concurrency"):
            work.set_max_concurrency(2)
    async with working(Gates(), enable_dynamic_concurrency=True) as work:
        for bad in (0, -1, True, 1.5, "2"):
            with pytest.raises(ValueError, match="max_concurrency"):
                work.set_max_concurrency(bad)  # type: ignore[arg-type]


async def test_a_paused_coordinator_starts_nothing_and_takes_what_fits() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=2, max_pending=2) as work:
        await work.enqueue(0)
        await settle(work)
        work.pause()
        assert work.is_paused
        await work.enqueue_many([1, 2])
        assert not work.try_enqueue(3)
        gates.let_go(0)
        await settle(work)
        assert gates.started == [0]
        work.resume()
        assert not work.is_paused
        await settle(work)
        assert gates.started == [0, 1, 2]
        gates.open()


async def test_an_idle_worker_takes_what_comes_while_others_run() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=3) as work:
        for item in range(3):
            await work.enqueue(item)
            await settle(work)
            assert gates.active == list(range(item + 1))
        gates.let_go(0, 1, 2)
        await settle(work)
        await work.enqueue_many([3, 4, 5, 6])
        await settle(work)
        assert gates.active == [3, 4, 5]
        gates.open()
