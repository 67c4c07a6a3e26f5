"""Calls: items that run in their caller's own task, within the slots of the rungs."""

from __future__ import annotations

from typing import Any

import anyio

from ._errors import CoordinatorCompletedError, NoHealthyProcessorError, ProcessingFailedError
from ._ids import next_id
from ._operations import NO_CONTEXT
from ._rungs import Item, Rung
from ._runs import REFUSED, LadderRuns


class LadderCalls(LadderRuns):
    """Takes calls, and has each wait for its slot; what takes the slot and ends the run is as for any item.

    Nearly every call finds a slot at once and ends well. Such a one never becomes an `Item`, which would take a quarter
    of its time.
    """

    async def call(self, payload: Any, name: str) -> Any:
        """Run one item in the caller's task and return its result."""
        rung = self._free_rung()
        if rung is None:
            item = Item(next_id(), payload, name, NO_CONTEXT, True)
            self._place(item)
            return await self._run_to_end(item)
        operation_id, epoch = next_id() if name else 0, rung.epoch
        rung.active += 1
        self._swift_calls += 1
        try:
            if name:
                self._sink.raise_made(f"processing.started:{rung.name}:{name}", operation_id)
            value = await rung.run(payload)
        except BaseException as error:
            item = self._itemized(operation_id, payload, name, rung, epoch)
            if not self._after_failure(item, error):
                raise
        else:
            if value is not False:
                self._ended_well(operation_id, name, rung, epoch)
                return value
            item = self._itemized(operation_id, payload, name, rung, epoch)
            self._returned_false(item)
        return await self._run_to_end(item)

    def _free_rung(self) -> Rung | None:
        """Return the rung that a new call may run on without being asked anything else."""
        route, waiting, rung = self.route, self._waiting, self.route.current
        if rung is None or not route.is_all_up or waiting.line or waiting.calls or self.intake.is_closed:
            return None
        return rung if rung.active < rung.slots and rung.slow_after is None else None

    def _itemized(self, operation_id: int, payload: Any, name: str, rung: Rung, epoch: int) -> Item:
        """Return a call that ran without one as an item that runs."""
        item = Item(operation_id or next_id(), payload, name, NO_CONTEXT, True)
        item.rung, item.epoch = rung, epoch
        self._running[item.id] = item
        self._swift_calls -= 1
        return item

    def _ended_well(self, operation_id: int, name: str, rung: Rung, epoch: int) -> None:
        """Do what `_after_success` does, for a call without an item."""
        if name:
            self._tell("complete", rung, name, operation_id)
        self.health.succeeded(rung.name, epoch, self.workers.now())
        self.total_completed += 1
        rung.active -= 1
        self._swift_calls -= 1
        waiting = self._waiting
        if waiting.line or waiting.calls or waiting.handed:
            self.workers.wake()
        elif self._idle is not None:
            self._note_idle()

    async def _run_to_end(self, item: Item) -> Any:
        """Run a call in its caller's task, as often as it takes."""
        while True:
            if item.turn is not None:
                await self._turn_of(item, item.turn)
            try:
                value = await (self._run_leased(item) if item.is_canary else self._begin(item))
            except BaseException as error:
                if not self._after_failure(item, error):
                    raise
                continue
            if value is REFUSED:
                self._refused_probe(item)
            elif value is False:
                self._returned_false(item)
            else:
                self._after_success(item)
                return value

    def _returned_false(self, item: Item) -> None:
        """Note a failure that the processor told by its result; raises unless the call runs again."""
        failure = ProcessingFailedError(item.rung.name, item.name)
        if not self._after_failure(item, failure, is_own=True):
            raise failure

    def _place(self, item: Item) -> None:
        """Give a new call its slot, now or in its turn."""
        if self.intake.is_closed:
            raise CoordinatorCompletedError(self.name)
        canary_of = None if self._waiting.is_contended else self.route.canary_rung(self.workers.now())
        if canary_of is not None:
            self._occupy(item, canary_of, as_canary=True)
        else:
            self._seat_call(item)

    def _seat_call(self, item: Item) -> None:
        """Give a call a slot of the route, now or in its turn."""
        route = self.route.current
        if route is None:
            raise NoHealthyProcessorError(self.group, self.route.retry_at(self.workers.now()))
        if route.has_slot and not self._waiting.is_contended:
            self._occupy(item, route)
        else:
            item.turn = anyio.Event()
            self._waiting.hand(item, None)

    async def _turn_of(self, item: Item, turn: anyio.Event) -> None:
        try:
            await turn.wait()
        except BaseException as error:
            if item.id in self._running:
                self._after_failure(item, error)
            elif item.refusal is None:
                self._waiting.remove(item)
                self.intake.freed()
                self.total_cancelled += 1
                item.clear()
                self._note_idle()
            raise
        item.turn = None
        if item.refusal is not None:
            raise item.refusal

    def _refused_probe(self, item: Item) -> None:
        """Somebody else probes: the call takes a slot of the route, if there is one."""
        if self._is_over or (item.must_run and self.route.current is None):
            item.turn = anyio.Event()
            self._after_refusal(item)
            return
        self._vacate(item)
        item.rest()
        try:
            self._seat_call(item)
        except NoHealthyProcessorError:
            self.total_failed += 1
            item.clear()
            self._note_idle()
            raise
