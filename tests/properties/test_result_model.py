"""Random lives of a result coordinator, beside a model that remembers everything and says who gets what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralOptions,
    EphemeralResultCoordinator,
    OperationCancelledError,
    UnknownOperationError,
)

from ..work_kit import Gates, balance, settle  # noqa: TID252  the tests are no package on the path

LIMIT, BOUND, CAPACITY, LIFETIME = 2, 3, 4, 10.0
Command = tuple[str, int]
Outcome = tuple[str, Any]

commands = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["enqueue", "submit"]), st.just(0)),
        st.tuples(st.sampled_from(["submit", "finish", "fail"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["wait", "wait", "give_up", "cancel_operation"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["finish", "swallow"]), st.integers(0, 5)),
        st.tuples(st.just("sleep"), st.sampled_from([4, 11])),
    ),
    min_size=8,
    max_size=40,
)


class Squaring(Gates):
    async def __call__(self, item: Any, op: Any) -> int:
        await super().__call__(item, op)
        return item * item


@dataclass
class Waiter:
    """Somebody who waits for an item's result."""

    item: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    outcome: Outcome | None = None


@dataclass
class Model:
    """Where each item stands, and since when."""

    line: list[int] = field(default_factory=list[int])
    submitted: list[int] = field(default_factory=list[int])
    running: list[int] = field(default_factory=list[int])
    ended: dict[int, tuple[Outcome, float]] = field(default_factory=dict[int, tuple[Outcome, float]])
    window: list[int] = field(default_factory=list[int])
    started: list[int] = field(default_factory=list[int])
    now: float = 0.0

    def settle(self) -> None:
        moved = True
        while moved:
            moved = False
            if self.submitted and len(self.line) < BOUND:
                self.line.append(self.submitted.pop(0))
                moved = True
            if self.line and len(self.running) < LIMIT:
                item = self.line.pop(0)
                self.running.append(item)
                self.started.append(item)
                moved = True
        self.trim()

    def trim(self) -> None:
        """Forget, oldest end first, what is too old or too much."""
        while self.window and (
            self.now - self.ended[self.window[0]][1] > LIFETIME or len(self.window) + len(self.running) > CAPACITY
        ):
            self.window.pop(0)

    def end(self, item: int, outcome: Outcome) -> None:
        self.running.remove(item)
        self.ended[item] = outcome, self.now
        self.window.append(item)
        self.trim()


class Machine:
    def __init__(self, tasks: Any) -> None:
        self.model = Model()
        self.gates = Squaring()
        self.tasks = tasks
        self.made = 0
        self.ids: dict[int, int] = {}
        self.waiters: list[Waiter] = []
        self.began = anyio.current_time()
        self.results: EphemeralResultCoordinator[int, int] = EphemeralResultCoordinator(
            self.gates,
            EphemeralOptions(
                max_concurrency=LIMIT,
                max_pending=BOUND,
                max_tracked_operations=CAPACITY,
                max_operation_lifetime=LIFETIME,
            ),
        )

    async def step(self, command: Command) -> None:
        name, number = command
        getattr(self, name)(number)
        await settle(self.results)
        if name == "sleep":
            await anyio.sleep(number)
            self.model.now = anyio.current_time() - self.began
        self.model.settle()
        await settle(self.results)
        self.compare()

    def compare(self) -> None:
        model, results = self.model, self.results
        assert self.gates.started == model.started
        for waiter in self.waiters:
            expected = model.ended[waiter.item][0] if waiter.item in model.ended else None
            assert waiter.outcome == expected or waiter.outcome == ("gave up", None), waiter
        remembered = [item for item in model.started if item in [*model.window, *model.running]]
        by_id = {operation.id: item for item, operation in self.gates.operations.items()}
        assert [by_id[seen.id] for seen in results.get_snapshot()] == remembered
        values = [item * item for item in remembered if item in model.window and model.ended[item][0][0] == "result"]
        assert list(results.get_results()) == values

    # Commands

    def _new(self) -> int:
        self.made += 1
        return self.made

    def enqueue(self, number: int) -> None:
        item = self._new()
        if self.results.try_enqueue(item):
            self.model.line.append(item)

    def submit(self, number: int) -> None:
        waiter = Waiter(self._new())
        self.waiters.append(waiter)
        self.tasks.start_soon(self._await, waiter, lambda: self.results.submit(waiter.item))
        self.model.submitted.append(waiter.item)

    async def _await(self, waiter: Waiter, call: Any) -> None:
        with waiter.scope:
            try:
                waiter.outcome = "result", await call()
            except ValueError as error:
                waiter.outcome = "error", error.args
            except OperationCancelledError:
                waiter.outcome = "cancelled", None
            except CoordinatorCompletedError:
                waiter.outcome = "refused", None
        if waiter.scope.cancelled_caught:
            waiter.outcome = "gave up", None

    def _id(self, item: int) -> int:
        if item in self.gates.operations:
            return self.gates.operations[item].id
        return next((operation.id for operation in self.results._line if operation.item == item), -1)

    def wait(self, number: int) -> None:
        item = max(1, self.made - number)
        known = item in [*self.model.line, *self.model.running, *self.model.window]
        waiter = Waiter(item)
        if known:
            self.waiters.append(waiter)
            self.tasks.start_soon(self._await, waiter, lambda: self.results.wait_for_result(self._id(item)))
        else:
            self.tasks.start_soon(self._expect_unknown, self._id(item))

    async def _expect_unknown(self, operation_id: int) -> None:
        with pytest.raises(UnknownOperationError, match=str(operation_id)):
            await self.results.wait_for_result(operation_id)

    def give_up(self, number: int) -> None:
        waiting = [waiter for waiter in self.waiters if waiter.outcome is None]
        if waiting:
            waiter = waiting[number % len(waiting)]
            waiter.scope.cancel()
            if waiter.item in self.model.submitted:
                self.model.submitted.remove(waiter.item)

    def _choose(self, number: int) -> int | None:
        return self.model.running[number % len(self.model.running)] if self.model.running else None

    def finish(self, number: int) -> None:
        if item := self._choose(number):
            self.gates.let_go(item)
            self.model.end(item, ("result", item * item))

    def fail(self, number: int) -> None:
        if item := self._choose(number):
            self.gates.errors[item] = ValueError(item)
            self.gates.let_go(item)
            self.model.end(item, ("error", (item,)))

    def swallow(self, number: int) -> None:
        """Cancel one that returns a result all the same."""
        if item := self._choose(number):
            self.gates.stubborn.add(item)
            assert self.results.cancel_operation(self._id(item))
            self.model.end(item, ("cancelled", None))

    def cancel_operation(self, number: int) -> None:
        known = [*self.model.line, *self.model.running]
        if not known:
            return
        item = known[number % len(known)]
        assert self.results.cancel_operation(self._id(item))
        if item in self.model.line:
            self.model.line.remove(item)
            self.model.ended[item] = ("cancelled", None), self.model.now
        else:
            self.model.end(item, ("cancelled", None))

    def sleep(self, number: int) -> None:
        """The clock moves once all has settled."""

    async def end(self, is_cancelled: bool) -> None:
        left = [*self.model.line, *self.model.running]
        self.results.cancel() if is_cancelled else self.results.complete()
        self.gates.open()
        assert await self.results.drain()
        await settle(self.results)
        for item in self.model.submitted:
            self.model.ended[item] = ("refused", None), 0
        for item in left:
            self.model.ended[item] = (("cancelled", None) if is_cancelled else ("result", item * item)), 0
        for waiter in self.waiters:
            assert waiter.outcome in {self.model.ended[waiter.item][0], ("gave up", None)}


@settings(max_examples=60)
@given(script=commands, is_cancelled=st.booleans())
async def test_a_result_coordinator_gives_everybody_what_its_model_says(
    script: list[Command], is_cancelled: bool
) -> None:
    async with anyio.create_task_group() as tasks:
        machine = Machine(tasks)
        async with machine.results:
            for command in script:
                await machine.step(command)
            await machine.end(is_cancelled)
        balance(machine.results)
    assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]
