"""Questions to the signals that a coordinator's operations emitted, as long as those operations are remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime

from ._checks import since_seconds, until_seconds
from ._history import OperationHistory
from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent


class OperationSignals(ABC):
    """Signals by operation: unlike the sink's window, this one forgets a signal together with its operation."""

    @abstractmethod
    def _recent(self) -> OperationHistory:
        """Return the window, exact as of now."""

    def get_signals(self, predicate: Callable[[SignalEvent], bool] | None = None) -> list[SignalEvent]:
        """Return the signals that satisfy *predicate* (None: all), by start of their operations, then as emitted."""
        events = (event for operation in self._recent() for event in operation.events)
        return [event for event in events if predicate is None or predicate(event)]

    def get_signals_by_key(self, key: str) -> list[SignalEvent]:
        """Return the signals of the operations that ran under *key*."""
        return self.get_signals(lambda event: event.key == key)

    def get_signals_since(self, since: datetime | float) -> list[SignalEvent]:
        """Return the signals stamped *since* or later (aware ``datetime`` or UTC epoch seconds)."""
        start = since_seconds("since", since)
        return self.get_signals(lambda event: event.timestamp >= start)

    def get_signals_by_time_range(self, start: datetime | float, end: datetime | float) -> list[SignalEvent]:
        """Return the signals stamped from *start* to *end*, both included."""
        first, last = since_seconds("start", start), until_seconds("end", end)
        return self.get_signals(lambda event: first <= event.timestamp <= last)

    def get_signals_by_name(self, name: str) -> list[SignalEvent]:
        """Return the signals of exactly this name."""
        return self.get_signals(lambda event: event.signal == name)

    def get_signals_by_pattern(self, pattern: Pattern) -> list[SignalEvent]:
        """Return the signals whose name matches *pattern*."""
        matches = compile_pattern(pattern)
        return self.get_signals(lambda event: matches(event.signal))

    def has_signal(self, name: str) -> bool:
        """Whether an operation emitted a signal of exactly this name."""
        return bool(self.get_signals_by_name(name))

    def has_signal_matching(self, pattern: Pattern) -> bool:
        """Whether an operation emitted a signal that matches *pattern*."""
        return bool(self.get_signals_by_pattern(pattern))

    def count_signals(self, name: str | None = None) -> int:
        """Return how many signals of exactly this name were emitted (None: of any)."""
        return len(self.get_signals() if name is None else self.get_signals_by_name(name))

    def count_signals_matching(self, pattern: Pattern) -> int:
        """Return how many signals that match *pattern* were emitted."""
        return len(self.get_signals_by_pattern(pattern))
