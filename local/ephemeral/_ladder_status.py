"""What a ladder shows of itself: the health of a rung, the counters of a group."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._health import HealthState


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
