"""What a coordinator tells of itself in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStatistics:
    """What a coordinator has done and is doing.

    ``total_enqueued == pending_count + active_count + total_completed + total_failed + total_skipped +
    total_cancelled`` at every instant on the loop's thread.

    Attributes:
        pending_count: Items that wait.
        active_count: Operations that run.
        total_enqueued: Items accepted so far.
        total_completed: Operations whose body returned.
        total_failed: Operations whose body raised, or ran out of time.
        total_skipped: Items passed over because of a signal.
        total_cancelled: Items and operations cancelled.
        tracked: Operations in the window, running ones included.
        max_concurrency: How many operations may run now.
        callback_errors: How often a callback of the options raised.
        dropped_signals: Signals that ``on_signal_async`` was not told of, because too many waited.
        is_paused: Whether starting is held up by hand.
        is_deferred: Whether starting is held up by a signal (``defer_on_signals``).
        is_completed: Whether it takes no more items.
    """

    pending_count: int
    active_count: int
    total_enqueued: int
    total_completed: int
    total_failed: int
    total_skipped: int
    total_cancelled: int
    tracked: int
    max_concurrency: int
    callback_errors: int
    dropped_signals: int
    is_paused: bool
    is_deferred: bool
    is_completed: bool
