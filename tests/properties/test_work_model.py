"""Random lives of a work coordinator, held to a naive model after every step, on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import CoordinatorCompletedError, EphemeralOptions, EphemeralWorkCoordinator

from ..work_kit import Gates, Work, balance, settle  # noqa: TID252  the tests are no package on the path

BOUND = 3
CAPACITY = 4
LIFETIME = 10.0

Command = tuple[str, int]

commands = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["enqueue", "try_enqueue", "finish", "fail", "cancels_itself"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["cancel_operation", "pin", "unpin", "evict"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["pause", "resume"]), st.just(0)),
        st.tuples(st.just("resize"), st.integers(1, 4)),
        st.tuples(st.just("sleep"), st.sampled_from([1, 4, 11])),
    ),
    max_size=40,
)  # fmt: skip


@dataclass
class Ended:
    """An operation that ended, as the model remembers it."""

    item: int
    ended_at: float
    turn: int
    is_pinned: bool = False


@dataclass
class Model:
    """What a coordinator is to do, with lists and no cleverness."""

    limit: int = 2
    line: list[int] = field(default_factory=list[int])
    producers: list[int] = field(default_factory=list[int])
    running: list[int] = field(default_factory=list[int])
    started: list[int] = field(default_factory=list[int])
    window: list[Ended] = field(default_factory=list[Ended])
    pinned_running: set[int] = field(default_factory=set[int])
    finalized: list[int] = field(default_factory=list[int])
    counts: dict[str, int] = field(default_factory=lambda: {"completed": 0, "failed": 0, "cancelled": 0})
    is_paused: bool = False
    is_completed: bool = False
    now: float = 0.0
    turn: int = 0

    def settle(self) -> None:
        moved = True
        while moved:
            moved = False
            while self.producers and len(self.line) < BOUND:
                self.line.append(self.producers.pop(0))
                moved = True
            if self.line and not self.is_paused and len(self.running) < self.limit:
                item = self.line.pop(0)
                self.running.append(item)
                self.started.append(item)
                moved = True
        self.trim()

    def trim(self) -> None:
        def ages() -> list[Ended]:
            return sorted((one for one in self.window if not one.is_pinned), key=lambda one: (one.ended_at, one.turn))

        for one in ages():
            if self.now - one.ended_at > LIFETIME:
                self.forget(one)
        while ages() and len(self.window) + len(self.running) > CAPACITY:
            self.forget(ages()[0])

    def forget(self, one: Ended) -> None:
        self.window.remove(one)
        self.finalized.append(one.item)

    def end(self, item: int, how: str) -> None:
        self.running.remove(item)
        self.counts[how] += 1
        self.turn += 1
        self.window.append(Ended(item, self.now, self.turn, item in self.pinned_running))
        self.trim()

    def tracked(self) -> list[int]:
        ended = [one.item for one in self.window]
        return sorted([*self.running, *ended], key=self.started.index)


class Machine:
    """Does each command to a coordinator and to its model, and compares."""

    def __init__(self, tasks: Any) -> None:
        self.model = Model()
        self.gates = Gates()
        self.tasks = tasks
        self.names: dict[int, int] = {}
        self.ids: dict[int, int] = {}
        self.finalized: list[int] = []
        self.refused: list[int] = []
        self.items: Iterator[int] = iter(range(10**6))
        self.began = anyio.current_time()
        self.work: Work = EphemeralWorkCoordinator(
            self.gates,
            EphemeralOptions(
                max_concurrency=self.model.limit,
                max_pending=BOUND,
                max_tracked_operations=CAPACITY,
                max_operation_lifetime=LIFETIME,
                enable_dynamic_concurrency=True,
                on_sample=lambda window: balance(self.work),
                on_operation_finalized=lambda seen: self.finalized.append(seen.id),
            ),
        )

    async def step(self, command: Command) -> None:
        name, number = command
        getattr(self, name)(number)
        await settle(self.work)
        if name == "sleep":
            await anyio.sleep(number)
            self.model.now = anyio.current_time() - self.began
        self.model.settle()
        self.compare()

    def compare(self) -> None:
        model, work = self.model, self.work
        assert self.gates.started == model.started
        assert self.gates.active == [item for item in model.started if item in model.running]
        assert (work.pending_count, work.active_count) == (len(model.line), len(model.running))
        assert (work.total_completed, work.total_failed, work.total_cancelled) == tuple(model.counts.values())
        assert (work.is_paused, work.is_completed) == (model.is_paused, model.is_completed)
        named = {operation.id: item for item, operation in self.gates.operations.items()}
        assert [named[seen.id] for seen in work.get_snapshot()] == model.tracked()
        assert [named[one] for one in self.finalized] == model.finalized
        assert work.is_drained is (model.is_completed and not model.line and not model.running)
        assert work.statistics().callback_errors == 0

    # Commands

    def enqueue(self, number: int) -> None:
        item = next(self.items)
        self.tasks.start_soon(self._produce, item)
        if not self.model.is_completed:
            self.model.producers.append(item)

    async def _produce(self, item: int) -> None:
        try:
            self.ids[item] = await self.work.enqueue(item)
        except CoordinatorCompletedError:
            self.refused.append(item)

    def try_enqueue(self, number: int) -> None:
        item = next(self.items)
        has_room = len(self.model.line) < BOUND and not self.model.is_completed
        assert self.work.try_enqueue(item) is has_room
        if has_room:
            self.model.line.append(item)

    def _end(self, number: int, how: str, error: BaseException | None = None) -> None:
        if self.model.running:
            item = self.model.running[number % len(self.model.running)]
            if error is not None:
                self.gates.errors[item] = error
            self.gates.let_go(item)
            self.model.end(item, how)

    def finish(self, number: int) -> None:
        self._end(number, "completed")

    def fail(self, number: int) -> None:
        self._end(number, "failed", ValueError(number))

    def cancels_itself(self, number: int) -> None:
        kind: Any = anyio.get_cancelled_exc_class()
        error = kind() if kind is asyncio.CancelledError else kind._create(source="unknown")
        self._end(number, "cancelled", error)

    def cancel_operation(self, number: int) -> None:
        known = [item for item in [*self.model.line, *self.model.running] if item in self.ids]
        if not known:
            assert not self.work.cancel_operation(number)
            return
        item = known[number % len(known)]
        assert self.work.cancel_operation(self.ids[item])
        if item in self.model.line:
            self.model.line.remove(item)
            self.model.counts["cancelled"] += 1
        else:
            self.model.end(item, "cancelled")

    def pause(self, number: int) -> None:
        self.work.pause()
        self.model.is_paused = True

    def resume(self, number: int) -> None:
        self.work.resume()
        self.model.is_paused = False

    def resize(self, number: int) -> None:
        self.work.set_max_concurrency(number)
        self.model.limit = number

    def sleep(self, number: int) -> None:
        """The clock moves once all has settled."""

    def _one_of(self, number: int) -> tuple[int, Ended | None]:
        """Choose an operation that started, whether it is still remembered or not."""
        if not self.model.started:
            return -1, None
        item = self.model.started[-1 - number % len(self.model.started)]
        ended = [one for one in self.model.window if one.item == item]
        return item, ended[0] if ended else None

    def _id(self, item: int) -> int:
        return self.gates.operations[item].id if item >= 0 else -1

    def pin(self, number: int) -> None:
        item, ended = self._one_of(number)
        assert self.work.pin(self._id(item)) is (ended is not None or item in self.model.running)
        if ended is not None:
            ended.is_pinned = True
        elif item in self.model.running:
            self.model.pinned_running.add(item)

    def unpin(self, number: int) -> None:
        item, ended = self._one_of(number)
        assert self.work.unpin(self._id(item)) is (ended is not None or item in self.model.running)
        self.model.pinned_running.discard(item)
        if ended is not None and ended.is_pinned:
            self.model.turn += 1
            ended.is_pinned, ended.turn = False, self.model.turn
            self.model.trim()

    def evict(self, number: int) -> None:
        item, ended = self._one_of(number)
        assert self.work.evict(self._id(item)) is (ended is not None and not ended.is_pinned)
        if ended is not None and not ended.is_pinned:
            self.model.forget(ended)

    # The end

    async def complete_and_drain(self) -> None:
        self.work.complete()
        waiting, self.model.producers = self.model.producers, []
        self.model.is_completed = True
        await settle(self.work)
        self.compare()
        assert sorted(self.refused) == sorted(waiting)
        self.gates.open()
        assert await self.work.drain()
        expected = [*self.model.started, *self.model.line]
        assert self.gates.started == expected
        assert self.work.total_cancelled == self.model.counts["cancelled"]

    async def cancel(self) -> None:
        left = len(self.model.line) + len(self.model.running)
        self.work.cancel()
        assert await self.work.drain()
        await settle(self.work)
        assert self.work.total_cancelled == self.model.counts["cancelled"] + left
        assert sorted(self.refused) == sorted(self.model.producers)
        assert self.gates.started == self.model.started


@settings(max_examples=60)
@given(script=commands, is_cancelled=st.booleans(), early=st.integers(0, BOUND))
async def test_a_coordinator_does_what_its_model_does(script: list[Command], is_cancelled: bool, early: int) -> None:
    async with anyio.create_task_group() as tasks:
        machine = Machine(tasks)
        for _ in range(early):
            machine.try_enqueue(0)
        async with machine.work:
            await settle(machine.work)
            machine.model.settle()
            machine.compare()
            for command in script:
                await machine.step(command)
            await (machine.cancel() if is_cancelled else machine.complete_and_drain())
        balance(machine.work)
        assert machine.work.is_drained
        assert len(machine.work.get_snapshot()) <= max(CAPACITY, sum(s.is_pinned for s in machine.work.get_snapshot()))
        assert len(machine.finalized) == len(set(machine.finalized))
    assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]
