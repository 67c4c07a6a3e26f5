"""What a ladder shows of itself: the health of a rung, the counters of a group; and which ladders a sink has."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime

from ._health import HealthRecord, HealthRules, HealthState


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorHealth:
    """The health of one rung, as this process knows it.

    Attributes:
        processor: Its name in signals, ``pri1`` or ``group.pri1``.
        priority: Its place in the ladder.
        state: ``"up"``, ``"down"``, ``"probing"`` or ``"isolated"``.
        since: When it came into that state (a probe is no change of it).
        failures: How many count against it now; of one that is down, how many took it down.
        last_probe: When it was last probed; None: never.
        epoch: Grows with each change of state.
        by: Origin of the sink whose worker caused the last change.
        is_local: Whether only this worker holds it for down.
    """

    processor: str
    priority: int
    state: HealthState
    since: datetime
    failures: int
    last_probe: datetime | None
    epoch: int
    by: str
    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """What a group has done and is doing; calls are counted like items.

    ``total_enqueued == pending_count + active_count + total_completed + total_failed + total_cancelled +
    total_abandoned + total_undelivered`` at every instant on the loop's thread.

    Attributes:
        pending_count: Items and calls that wait.
        active_count: Items and calls that run.
        total_enqueued: Accepted so far.
        total_completed: Processed well.
        total_failed: Given up after a failure, and calls that ended with an error.
        total_cancelled: Cancelled: calls by their callers, everything when a block was left by an exception.
        total_abandoned: Given up after ``max_attempts`` runs.
        total_undelivered: Left over when ``drain_timeout`` was over.
        callback_errors: How often ``on_failed`` or ``is_failure`` raised.
    """

    pending_count: int
    active_count: int
    total_enqueued: int
    total_completed: int
    total_failed: int
    total_cancelled: int
    total_abandoned: int
    total_undelivered: int
    callback_errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RungStatus:
    """One processor of a ladder, as its worker sees it.

    Attributes:
        priority: Its place in the ladder.
        record: Its health, times in UTC epoch seconds of the sink's clock.
        failures: How many count against it now; of one that is down, how many took it down.
        rules: By which this worker judges it.
        slots: How many items it may process at once.
        active: Slots taken.
    """

    priority: int
    record: HealthRecord
    failures: int
    rules: HealthRules
    slots: int
    active: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStatus:
    """One group of a sink, as its worker sees it.

    Attributes:
        group: Its name.
        rungs: By priority, the most wanted first.
        statistics: Its counters.
    """

    group: str
    rungs: tuple[RungStatus, ...]
    statistics: GroupStatistics

    @property
    def route(self) -> str | None:
        """The processor that new work goes to; None: none is healthy, so work waits."""
        return next((rung.record.processor for rung in self.rungs if rung.record.is_up), None)


class ShownLadder(ABC):
    """A ladder, as whoever looks at a sink sees it."""

    @abstractmethod
    def status(self) -> LadderStatus | None:
        """Return what it shows of itself; None: its blocks are not open. Any thread may ask."""


# Neither side is kept alive by this: a sink that is dropped takes its ladders along, a ladder its entry.
_ladders: weakref.WeakKeyDictionary[object, weakref.WeakValueDictionary[str, ShownLadder]] = weakref.WeakKeyDictionary()


def ladders_of(sink: object) -> weakref.WeakValueDictionary[str, ShownLadder]:
    """Return the ladders on *sink* by group, for those who make them."""
    return _ladders.setdefault(sink, weakref.WeakValueDictionary())


def show_ladders(sink: object) -> tuple[LadderStatus, ...]:
    """Return the status of each ladder on *sink* whose blocks are open, by group. Any thread may ask."""
    # The references are listed in one step; the values themselves could change under an iteration.
    ladders = [reference() for reference in ladders_of(sink).valuerefs()]
    shown = [status for ladder in ladders if ladder is not None and (status := ladder.status()) is not None]
    return tuple(sorted(shown, key=lambda status: status.group))
