"""The pool of workers: as many tasks as are needed, none lost, none without need."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from .work_kit import Gates, Work, settle, totals, working


def workers() -> int:
    return sum(task.name == "ephemeral worker" for task in anyio.get_running_tasks())


async def test_workers_are_started_on_demand_and_used_again() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=5) as work:
        await settle(work)
        assert workers() <= 1
        for item in range(4):
            await work.enqueue(item)
            await settle(work)
            gates.let_go(item)
            await settle(work)
        assert workers() == 1
        await work.enqueue_many("abcdefgh")
        await settle(work)
        assert (workers(), len(gates.active)) == (5, 5)
        gates.open()
        await settle(work)
        assert workers() == 5
    assert workers() == 0


async def test_one_worker_is_enough_for_bodies_that_never_wait() -> None:
    gates = Gates()
    gates.open()
    async with working(gates, max_concurrency=5) as work:
        await work.enqueue_many(range(50))
        await settle(work)
        assert (workers(), gates.started) == (1, list(range(50)))


async def test_a_surplus_of_workers_sleeps_and_is_woken_as_the_limit_grows() -> None:
    gates = Gates()
    async with working(gates, max_concurrency=4, enable_dynamic_concurrency=True) as work:
        await work.enqueue_many(range(12))
        await settle(work)
        work.set_max_concurrency(1)
        gates.let_go(0, 1, 2)
        await settle(work)
        assert gates.active == [3]
        gates.let_go(3)
        await settle(work)
        assert gates.active == [4]
        work.set_max_concurrency(4)
        await settle(work)
        assert (gates.active, workers()) == ([4, 5, 6, 7], 4)
        gates.open()


@pytest.mark.parametrize("resumes_paused", [False, True])
async def test_waking_before_anything_can_run_starts_all_that_may(resumes_paused: bool) -> None:
    gates = Gates()
    async with working(gates, max_concurrency=3) as work:
        work.pause()
        await work.enqueue_many(range(6))
        for _ in range(10):
            work.resume()
            work.pause()
        if not resumes_paused:
            await settle(work)
            assert gates.started == []
        work.resume()
        await settle(work)
        assert gates.started == [0, 1, 2]
        gates.open()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_worker_whose_body_cancelled_its_task_leaves_its_place_to_another() -> None:
    async def body(item: int) -> None:
        if item == 0:
            task: Any = asyncio.current_task()
            task.cancel()
            work._workers.slice_end = -1.0  # so that the worker waits next, with a line behind it
        ran.append(item)

    ran: list[int] = []
    async with working(body, max_concurrency=1) as work:
        await work.enqueue_many(range(4))
        await settle(work)
        assert ran == [0, 1, 2, 3]
        await work.enqueue(4)
        await settle(work)
        assert ran == [0, 1, 2, 3, 4]
    assert totals(work) == (5, 0, 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_an_item_that_comes_as_a_body_cancels_its_task_is_taken_by_another_worker() -> None:
    """The worker parks after its body, is roused by the new item, and is cancelled all the same."""

    async def body(item: int) -> None:
        ran.append(item)
        if item == 0:
            asyncio.get_running_loop().call_soon(work.try_enqueue, 1)
            task: Any = asyncio.current_task()
            task.cancel()

    ran: list[int] = []
    async with working(body, max_concurrency=1) as work:
        await work.enqueue(0)
        await settle(work)
        await work.enqueue(2)
        await settle(work)
        assert ran == [0, 1, 2]
    assert totals(work) == (3, 0, 0)


async def test_items_that_come_as_their_producers_bodies_end_are_taken_at_once() -> None:
    """Bodies that enqueue what follows them: each end and each arrival falls into the same turn."""

    async def body(item: int) -> None:
        ran.append(item)
        if item < 100:
            await work.enqueue(item + 3)
        if item % 2:
            await anyio.lowlevel.checkpoint()

    ran: list[int] = []
    work: Work
    async with working(body, max_concurrency=2) as work:
        await work.enqueue_many(range(3))
        await settle(work)
        assert sorted(ran) == list(range(103))
        assert (work.pending_count, work.active_count) == (0, 0)
