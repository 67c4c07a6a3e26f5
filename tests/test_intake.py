"""The intake by itself: room that moves, producers that come in as they were told, in their order."""

from __future__ import annotations

import time
from contextvars import Context
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import CoordinatorCompletedError
from ephemeral._intake import Intake
from ephemeral._loops import Loop
from ephemeral.testing import wait_all_blocked


class Line:
    """An owner with nothing but a line."""

    def __init__(self, bound: int) -> None:
        self.items: list[Any] = []
        self.taken: list[Any] = []
        self.intake: Intake[Any] = Intake("the line", bound, self.items, self._admit)

    def _admit(self, item: Any, context: Context) -> int:
        if item == "refused by the owner":
            raise ValueError(item)
        self.items.append(item)
        return len(self.items)

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.taken.append(self.items.pop(0))
            self.intake.freed()


async def test_producers_wait_beyond_the_bound_and_come_in_as_room_comes() -> None:
    line = Line(2)
    async with anyio.create_task_group() as tasks:
        for item in range(6):
            tasks.start_soon(line.intake.enqueue, item)
            await wait_all_blocked()
        assert line.items == [0, 1]
        assert line.intake.try_enqueue("no room") is None
        line.take()
        await wait_all_blocked()
        assert line.items == [1, 2]
        line.take(2)
        await wait_all_blocked()
        assert line.items == [3, 4]
        line.take()
    assert line.items == [4, 5]


async def test_growing_lets_in_and_shrinking_puts_nobody_out() -> None:
    line = Line(1)
    async with anyio.create_task_group() as tasks:
        for item in range(5):
            tasks.start_soon(line.intake.enqueue, item)
            await wait_all_blocked()
        line.intake.resize(3)
        await wait_all_blocked()
        assert line.items == [0, 1, 2]
        line.intake.resize(1)
        line.take(2)
        await wait_all_blocked()
        assert line.items == [2]
        line.take()
        await wait_all_blocked()
        assert line.items == [3]
        line.intake.resize(9)
    assert line.items == [3, 4]


async def test_an_item_the_owner_refuses_takes_no_room() -> None:
    line = Line(1)
    with pytest.raises(ValueError, match="refused"):
        await line.intake.enqueue("refused by the owner")
    with pytest.raises(ValueError, match="refused"):
        line.intake.try_enqueue("refused by the owner")
    assert line.intake.try_enqueue("accepted") is not None


@pytest.mark.parametrize("loses", [0, 1, 2])
async def test_who_leaves_the_queue_changes_nobody_elses_turn(loses: int) -> None:
    line = Line(1)
    line.intake.try_enqueue("first")
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def produce(number: int) -> None:
        with scopes[number]:
            await line.intake.enqueue(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(produce, number)
            await wait_all_blocked()
        scopes[loses].cancel()
        await wait_all_blocked()
        for _ in range(3):
            line.take()
            await wait_all_blocked()
    assert line.taken == ["first", *[number for number in range(3) if number != loses]]


async def test_closing_tells_all_who_wait_and_all_who_were_told_to_come_in() -> None:
    line = Line(1)
    line.intake.try_enqueue("first")
    refused: list[int] = []

    async def produce(number: int) -> None:
        try:
            await line.intake.enqueue(number)
        except CoordinatorCompletedError:
            refused.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(produce, number)
            await wait_all_blocked()
        line.take()
        line.intake.close()
        line.intake.close()
    assert sorted(refused) == [0, 1, 2]
    assert line.items == []
    assert line.intake.try_enqueue("late") is None


@pytest.mark.real_time
async def test_a_thread_whose_call_the_loop_never_gets_to_is_told_at_the_end() -> None:
    def enqueue() -> None:
        try:
            line.intake.enqueue_threadsafe("late", stopping)
        except CoordinatorCompletedError:
            told.append("completed")

    line = Line(1)
    told: list[str] = []
    calls: list[Any] = []
    stopping = Loop(time.monotonic, calls.append, 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, enqueue)
        while not calls:
            await anyio.lowlevel.checkpoint()
        line.intake.end()
    assert told == ["completed"]
    calls[0]()
    assert line.items == []


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["produce", "produce", "try", "take", "take", "cancel", "settle", "grow"])),
    st.integers(1, 3),
)
async def test_whatever_happens_the_line_keeps_its_bound_and_its_order(script: list[str], bound: int) -> None:
    line = Line(bound)
    arrived: list[int] = []
    cancelled: set[int] = set()
    scopes: dict[int, anyio.CancelScope] = {}

    async def produce(number: int) -> None:
        with scopes[number]:
            await line.intake.enqueue(number)
            return
        cancelled.add(number)

    async with anyio.create_task_group() as tasks:
        for number, step in enumerate(script):
            if step == "produce":
                arrived.append(number)
                scopes[number] = anyio.CancelScope()
                tasks.start_soon(produce, number)
                await wait_all_blocked()
            elif step == "try" and line.intake.try_enqueue(number) is not None:
                arrived.append(number)
            elif step == "take" and line.items:
                line.take()
            elif step == "cancel" and scopes:
                scopes.popitem()[1].cancel()
            elif step == "settle":
                await wait_all_blocked()
            elif step == "grow":
                bound += 1
                line.intake.resize(bound)
            assert len(line.items) <= bound
        await wait_all_blocked()
        while line.items:
            line.take()
            await wait_all_blocked()
    tried = {number for number, step in enumerate(script) if step == "try"}
    produced = [number for number in arrived if number not in cancelled]
    assert sorted(line.taken) == sorted(produced)
    # Producers keep their order among themselves; a try that finds room may come in before one just told to.
    assert [number for number in line.taken if number not in tried] == [n for n in produced if n not in tried]
