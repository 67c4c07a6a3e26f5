"""What a coordinator tells of its work in numbers, as of now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ._emitter import Emitter
from ._history import OperationHistory
from ._intake import Intake
from ._lanes import Line
from ._sources import Feed
from ._statistics import CoordinatorStatistics
from ._steering import Steering
from ._workers import Workers


class CoordinatorCounters(ABC):
    """The counters of a coordinator; they balance at every instant on the loop's thread."""

    _active: int
    _emitter: Emitter
    _feed: Feed[Any] | None
    _history: OperationHistory
    _intake: Intake[Any]
    _is_paused: bool
    _line: Line[Any]
    _steering: Steering
    _total_cancelled: int
    _total_completed: int
    _total_failed: int
    _total_skipped: int
    _workers: Workers

    @abstractmethod
    def _recent(self) -> OperationHistory:
        """Return the window, exact as of now; on the loop's thread."""

    @property
    def pending_count(self) -> int:
        """Items that wait."""
        return len(self._line)

    @property
    def active_count(self) -> int:
        """Operations that run."""
        return self._active

    @property
    def total_enqueued(self) -> int:
        """Items accepted so far: derived from the other counters, so that they cannot disagree."""
        ended = self._total_completed + self._total_failed + self._total_skipped + self._total_cancelled
        return len(self._line) + self._active + ended

    @property
    def total_completed(self) -> int:
        """Operations whose body returned."""
        return self._total_completed

    @property
    def total_failed(self) -> int:
        """Operations whose body raised, or ran out of time."""
        return self._total_failed

    @property
    def total_skipped(self) -> int:
        """Items passed over because of a signal."""
        return self._total_skipped

    @property
    def total_cancelled(self) -> int:
        """Items and operations cancelled."""
        return self._total_cancelled

    @property
    def is_paused(self) -> bool:
        """Whether starting items is held up by `pause`."""
        return self._is_paused

    @property
    def is_deferred(self) -> bool:
        """Whether a signal holds items back now: those that wait, and those that come."""
        return self._steering.is_holding and not self.is_drained

    @property
    def is_completed(self) -> bool:
        """Whether it takes no more items."""
        return self._intake.is_closed

    @property
    def is_drained(self) -> bool:
        """Whether it takes no more items, all that were accepted have ended, and a source of them is closed."""
        if not self._intake.is_closed or len(self._line) or self._active:
            return False
        return self._feed is None or not self._feed.is_running

    @property
    def current_max_concurrency(self) -> int:
        """How many operations may run now."""
        return self._workers.limit

    def statistics(self) -> CoordinatorStatistics:
        """Return all counters of one instant; any thread may ask, but another than the loop's may see two of them."""
        handlers = self._emitter.handler_statistics
        # To forget what is too old is for the loop's thread alone.
        history = self._recent() if self._workers.loop.runs_here else self._history
        return CoordinatorStatistics(
            pending_count=self.pending_count,
            active_count=self.active_count,
            total_enqueued=self.total_enqueued,
            total_completed=self._total_completed,
            total_failed=self._total_failed,
            total_skipped=self._total_skipped,
            total_cancelled=self._total_cancelled,
            tracked=len(history),
            max_concurrency=self._workers.limit,
            callback_errors=self._emitter.errors + handlers.failed,
            dropped_signals=handlers.dropped,
            is_paused=self._is_paused,
            is_deferred=self.is_deferred,
            is_completed=self.is_completed,
        )
