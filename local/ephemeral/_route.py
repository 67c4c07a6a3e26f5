"""Where a group's work goes: its rungs in order, their health as the store last told it, and the edges between."""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Callable, Iterator
from typing import Final

from ._health import Change, HealthRecord
from ._health_store import HealthStore
from ._rungs import Rung, first_up, stand_in
from ._sink import SignalSink

_log: Final = logging.getLogger("ephemeral")


class Route:
    """Follows the health of a group's rungs and tells of each change, once the work has been moved.

    Belongs to the thread of the group's loop.

    Args:
        group: Its name.
        sink: Where the edges are told.
        health: Keeps the health of the rungs.
        on_change: Called with a rung whose health changed, to move work; ``current`` is right by then.
        on_order: Called with the ``KeyboardInterrupt`` or ``SystemExit`` that a listener raised.
    """

    def __init__(
        self,
        group: str,
        sink: SignalSink,
        health: HealthStore,
        on_change: Callable[[Rung], object],
        on_order: Callable[[BaseException], object],
    ) -> None:
        self.rungs: list[Rung] = []
        self.current: Rung | None = None
        """The highest healthy rung: where the head of the line goes."""
        self.is_all_up = True
        self._group = group
        self._sink = sink
        self._health = health
        self._on_change = on_change
        self._on_order = on_order
        self._is_quiet = False
        health.on_change = self._follow

    def join(self, rung: Rung, now: float) -> None:
        """Take *rung* in, in its place."""
        self._health.register(rung.name, rung.rules, now)
        rung.follow(self._health.record(rung.name))
        # Not sorted in place: meanwhile another thread, which shows the ladder, would find it empty.
        bisect.insort(self.rungs, rung, key=lambda other: other.priority)
        self._choose()

    async def learned(self) -> None:
        """Wait until what others know of the health of the rungs is known here; see `HealthStore.learned`."""
        await self._health.learned()

    def health_of(self, rung: Rung, now: float) -> tuple[HealthRecord, int]:
        """Return its record and the failures that count against it; once the group has ended, as they were then.

        Any thread may ask; on another than the loop's a ``KeyError`` says that the group is just ending.
        """
        return rung.last_health or (self._health.record(rung.name), self._health.failures(rung.name, now))

    def end(self, now: float) -> None:
        """Follow the health of the rungs no longer."""
        for rung in self.rungs:
            rung.last_health = self.health_of(rung, now)
            self._health.forget(rung.name)

    def hush(self) -> None:
        """Tell no edge from now on: a later ladder of the group follows the same health, and tells them."""
        self._is_quiet = True

    def canary_rung(self, now: float) -> Rung | None:
        """Return the rung that the next item should try: a probe by an item is due, and a slot free for it."""
        if self.is_all_up:
            return None
        due = (rung for rung in self.rungs if rung.probe is None and rung.has_slot and rung.wants_probe(now))
        return next(due, None)

    def rung_to_ask(self, now: float) -> Rung | None:
        """Return a rung whose own probe is due."""
        if self.is_all_up:
            return None
        return next((rung for rung in self.rungs if rung.probe is not None and rung.wants_probe(now)), None)

    def probes_at(self) -> Iterator[float]:
        """Yield the loop times at which probes become due."""
        return (rung.next_probe_at for rung in self.rungs if not rung.is_up and rung.asker is None)

    def retry_at(self, now: float) -> float | None:
        """Return when the next probe is due, in UTC epoch seconds; None if none is going to be."""
        due_at = min((rung.next_probe_at for rung in self.rungs), default=math.inf)
        return None if due_at == math.inf else self._sink.now() + max(0.0, due_at - now)

    def _follow(self, change: Change) -> None:
        rung = next((rung for rung in self.rungs if rung.name == change.after.processor), None)
        if rung is None:
            return
        was_up = rung.is_up
        rung.follow(change.after)
        self._choose()
        # Work first: a listener must find it where it now belongs.
        self._on_change(rung)
        if rung.is_up != was_up:  # a decision by hand comes twice: shown ahead, and once the fleet has it
            self._log_edge(change, rung)
        if change.is_own and not self._is_quiet:
            self._tell_edge(change, rung)

    def _choose(self) -> None:
        self.current = first_up(self.rungs)
        self.is_all_up = all(rung.is_up for rung in self.rungs)

    def _log_edge(self, change: Change, rung: Rung) -> None:
        if change.went_down and self.current is None:
            _log.warning("%s is %s; no rung is left", rung.name, _reason(change))
        elif change.went_down:
            _log.info("%s is %s; work goes to %s", rung.name, _reason(change), self.current and self.current.name)
        elif change.came_up:
            _log.info("%s is up again", rung.name)

    def _tell(self, signal: str, *, payload: object = None, key: str | None = None) -> None:
        try:
            self._sink.raise_signal(signal, payload=payload, key=key)
        except (KeyboardInterrupt, SystemExit) as order:  # a listener's, which must not cut short what caused the edge
            self._on_order(order)

    def _tell_edge(self, change: Change, rung: Rung) -> None:
        if change.cause == "probe_started":
            self._tell(f"probe.testing:{rung.name}")
        elif change.cause == "probe_passed":
            self._tell(f"probe.success:{rung.name}")
        elif change.cause == "probe_failed":
            self._tell(f"probe.failed:{rung.name}")
        route = None if self.current is None else self.current.name
        if change.went_down:
            edge = f"failover.requested:{rung.name}→{stand_in(self.rungs, rung)}"
            self._tell(edge, payload={"route": route, "local": change.is_local})
            if route is None and self.current is None:  # who heard of the edge may have brought one back
                self._tell("failover.exhausted", key=self._group)
        elif change.came_up:
            self._tell(f"failover.restored:{rung.name}", payload={"route": route, "local": change.is_local})


def _reason(change: Change) -> str:
    if change.cause == "isolate":
        return "isolated by hand"
    count = change.after.failures
    return f"down after {count} failure{'' if count == 1 else 's'}{' seen here' if change.after.is_local else ''}"
