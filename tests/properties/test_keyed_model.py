"""Random lives of a keyed coordinator, beside a model made of lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import CoordinatorCompletedError, EphemeralKeyedWorkCoordinator, EphemeralOptions

from ..work_kit import Gates, balance, settle  # noqa: TID252  the tests are no package on the path

BOUND, THRESHOLD = 6, 2
Item = tuple[str, int]
Command = tuple[str, int]

commands = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["try_enqueue", "enqueue"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["try_enqueue", "enqueue", "finish", "fail"]), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.just("cancel_operation"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["pause", "resume", "resume", "resume"]), st.just(0)),
        st.tuples(st.just("resize"), st.sampled_from([1, 1, 2, 3])),
    ),
    min_size=12,  # shorter ones seldom have two keys in each other's way
    max_size=50,
)


@dataclass
class Model:
    """What a keyed coordinator is to do, asking everything anew each time."""

    is_fair: bool
    per_key: int
    limit: int = 1
    line: list[Item] = field(default_factory=list[Item])
    producers: list[Item] = field(default_factory=list[Item])
    running: list[Item] = field(default_factory=list[Item])
    started: list[Item] = field(default_factory=list[Item])
    counts: Counter[str] = field(default_factory=Counter[str])
    turns: list[str] = field(default_factory=list[str])
    is_paused: bool = False

    def may_run(self, key: str) -> bool:
        waits = any(item[0] == key for item in self.line)
        return waits and sum(item[0] == key for item in self.running) < self.per_key

    def note_turns(self) -> None:
        """Keys queue for a turn as they become able to run, and lose it as they cease to be."""
        self.turns = [key for key in self.turns if self.may_run(key)]
        self.turns += [key for key in dict.fromkeys(key for key, _ in self.line) if self.may_run(key)]
        self.turns = list(dict.fromkeys(self.turns))

    def has_room(self, key: str) -> bool:
        is_full = self.is_fair and sum(item[0] == key for item in self.line) >= THRESHOLD
        return len(self.line) < BOUND and not is_full

    def next_to_start(self) -> Item | None:
        keys = self.turns[:1] if self.is_fair else [key for key, _ in self.line if self.may_run(key)]
        return next((item for item in self.line if item[0] == keys[0]), None) if keys else None

    def settle(self) -> None:
        self.note_turns()
        moved = True
        while moved:
            moved = False
            while not self.is_paused and len(self.running) < self.limit and (item := self.next_to_start()):
                self.line.remove(item)
                self.running.append(item)
                self.started.append(item)
                self.turns = [key for key in self.turns if key != item[0]]
                self.note_turns()
                moved = True
            for item in list(self.producers):
                if self.has_room(item[0]):
                    self.producers.remove(item)
                    self.line.append(item)
                    moved = True


class Machine:
    def __init__(self, model: Model, tasks: Any) -> None:
        self.model = model
        self.tasks = tasks
        self.gates = Gates()
        self.made = 0
        self.refused: list[Item] = []
        self.work: EphemeralKeyedWorkCoordinator[str, Item] = EphemeralKeyedWorkCoordinator(
            lambda item: item[0],
            self.gates,
            EphemeralOptions(
                max_concurrency=model.limit,
                max_concurrency_per_key=model.per_key,
                enable_fair_scheduling=model.is_fair,
                fair_scheduling_threshold=THRESHOLD,
                max_pending=BOUND,
                enable_dynamic_concurrency=True,
                on_sample=lambda window: balance(self.work),
            ),
        )

    async def step(self, command: Command) -> None:
        name, number = command
        getattr(self, name)(number)
        await settle(self.work)
        self.model.settle()
        self.compare()

    def compare(self) -> None:
        model, work = self.model, self.work
        assert self.gates.started == model.started
        assert sorted(self.gates.active) == sorted(model.running)
        assert (work.pending_count, work.active_count) == (len(model.line), len(model.running))
        for key in "abc":
            assert work.get_pending_count_for_key(key) == sum(item[0] == key for item in model.line)
        assert {key for key, _ in [*model.line, *model.running]} == work._lanes.keys()
        ended = (work.total_completed, work.total_failed, work.total_cancelled)
        assert ended == (model.counts["completed"], model.counts["failed"], model.counts["cancelled"])
        assert work.statistics().callback_errors == 0

    def new_item(self, number: int) -> Item:
        self.made += 1
        return "abc"[number], self.made

    def enqueue(self, number: int) -> None:
        if self.model.is_fair:  # whose key queues for a turn first would depend on whose task runs first
            self.try_enqueue(number)
            return
        item = self.new_item(number)
        self.tasks.start_soon(self._produce, item)
        self.model.producers.append(item)

    async def _produce(self, item: Item) -> None:
        try:
            await self.work.enqueue(item)
        except CoordinatorCompletedError:
            self.refused.append(item)

    def try_enqueue(self, number: int) -> None:
        item = self.new_item(number)
        assert self.work.try_enqueue(item) is self.model.has_room(item[0])
        if self.model.has_room(item[0]):
            self.model.line.append(item)

    def _end(self, number: int, how: str) -> None:
        if self.model.running:
            item = self.model.running[number % len(self.model.running)]
            self.gates.let_go(item)
            self.model.running.remove(item)
            self.model.counts[how] += 1

    def finish(self, number: int) -> None:
        self._end(number, "completed")

    def fail(self, number: int) -> None:
        if self.model.running:
            self.gates.errors[self.model.running[number % len(self.model.running)]] = ValueError(number)
        self._end(number, "failed")

    def cancel_operation(self, number: int) -> None:
        waiting = {operation.item: operation.id for operation in self.work._line}
        ids = {**waiting, **{item: self.gates.operations[item].id for item in self.model.running}}
        if not ids:
            return
        item = sorted(ids)[number % len(ids)]
        assert self.work.cancel_operation(ids[item])
        (self.model.line if item in waiting else self.model.running).remove(item)
        self.model.counts["cancelled"] += 1

    def pause(self, number: int) -> None:
        self.work.pause()
        self.model.is_paused = True

    def resume(self, number: int) -> None:
        self.work.resume()
        self.model.is_paused = False

    def resize(self, number: int) -> None:
        self.work.set_max_concurrency(number)
        self.model.limit = number

    async def end(self, is_cancelled: bool) -> None:
        left = len(self.model.line) + len(self.model.running)
        producers = list(self.model.producers)
        self.work.cancel() if is_cancelled else self.work.complete()
        self.gates.open()
        assert await self.work.drain()
        await settle(self.work)
        assert sorted(self.refused) == sorted(producers)
        cancelled = self.model.counts["cancelled"] + (left if is_cancelled else 0)
        assert self.work.total_cancelled == cancelled
        for key in "abc":
            numbers = [number for letter, number in self.gates.started if letter == key]
            assert numbers == sorted(numbers), "each key in order"
        assert not self.work._lanes.keys()
        assert self.work._producers is None or not self.work._producers.keys()


@settings(max_examples=60)
@given(script=commands, is_fair=st.booleans(), per_key=st.integers(1, 2), is_cancelled=st.booleans())
async def test_a_keyed_coordinator_does_what_its_model_does(
    script: list[Command], is_fair: bool, per_key: int, is_cancelled: bool
) -> None:
    async with anyio.create_task_group() as tasks:
        machine = Machine(Model(is_fair, per_key), tasks)
        async with machine.work:
            for command in script:
                await machine.step(command)
            await machine.end(is_cancelled)
        balance(machine.work)
    assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]
