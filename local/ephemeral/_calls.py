"""Calls: items that run in their caller's own task, within the slots of the rungs."""

from __future__ import annotations

from typing import Any, Final

import anyio

from ._errors import CoordinatorCompletedError, NoHealthyProcessorError, ProcessingFailedError
from ._ids import next_id
from ._operations import NO_CONTEXT
from ._rungs import Item
from ._runs import REFUSED, LadderRuns

# What an attempt returns after which there is to be another one.
_AGAIN: Final = object()


class LadderCalls(LadderRuns):
    """Takes calls, and has each wait for its slot; what takes the slot and ends the run is as for any item."""

    async def call(self, payload: Any, name: str) -> Any:
        """Run one item in the caller's task and return its result."""
        if self.intake.is_closed:
            raise CoordinatorCompletedError(self.name)
        item = Item(next_id(), payload, name, NO_CONTEXT, is_call=True)
        canary_of = None if self._waiting.is_contended else self.route.canary_rung(self.workers.now())
        if canary_of is not None:
            self._occupy(item, canary_of, as_canary=True)
        else:
            self._seat_call(item)
        result: Any = _AGAIN
        while result is _AGAIN:
            if item.turn is not None:
                await self._turn_of(item, item.turn)
            result = await self._attempt(item)
        return result

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

    async def _attempt(self, item: Item) -> Any:
        """Run a call once, in the caller's task; return its result, or `_AGAIN`."""
        try:
            value = await (self._run_leased(item) if item.is_canary else self._run(item))
        except BaseException as error:
            if not self._after_failure(item, error):
                raise
            return _AGAIN
        if value is REFUSED:
            self._refused_probe(item)
            return _AGAIN
        if value is False:
            failure = ProcessingFailedError(item.rung.name, item.name)
            if not self._after_failure(item, failure, is_own=True):
                raise failure
            return _AGAIN
        self._after_success(item)
        return value

    def _refused_probe(self, item: Item) -> None:
        """Somebody else probes: the call takes a slot of the route, if there is one."""
        if self._is_over or (item.must_run and self.route.current is None):
            item.turn = anyio.Event()
            self._after_refusal(item)
            return
        self._vacate(item)
        try:
            self._seat_call(item)
        except NoHealthyProcessorError:
            self.total_failed += 1
            item.clear()
            self._note_idle()
            raise
