"""What can be asked of a window of signals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ._checks import seconds, since_seconds
from ._counts import CountKind
from ._patterns import Pattern, compile_pattern
from ._signals import Predicate, SignalEvent, check_context


@dataclass(frozen=True, slots=True)
class OperationSignalSummary:
    """What one operation has signalled, as far as it is still in the window.

    Attributes:
        operation_id: The operation.
        key: The first key among its signals; None if none has one.
        first_at: Earliest stamp, aware, in UTC.
        last_at: Latest stamp.
        signals: Their names, oldest arrival first.
    """

    operation_id: int
    key: str | None
    first_at: datetime
    last_at: datetime
    signals: tuple[str, ...]


class SignalQuestions(ABC):
    """The queries of a sink. Each is exact by age and capacity at the moment it is asked."""

    __slots__ = ()

    @abstractmethod
    def _events(self) -> list[SignalEvent]:
        """Return the live events, oldest arrival first, in a list of the caller's own."""

    @abstractmethod
    def _count(
        self,
        kind: CountKind,
        text: str,
        since: float | datetime | None = None,
        within: float | timedelta | None = None,
    ) -> int:
        """Return how many live events match *kind* of *text* and are as recent as `lower_bound` has it."""

    def sense(self, which: Pattern | Predicate | None = None) -> list[SignalEvent]:
        """Return the live signals that match, oldest arrival first.

        Args:
            which: A pattern of names, or a function of the event; None for all.

        Raises:
            TypeError: *which* is neither.
            ValueError: A pattern has an empty part.
        """
        if which is None:
            return self._events()
        return list(filter(as_predicate(which), self._events()))

    def detect(self, which: str | Predicate) -> bool:
        """Whether a live signal has exactly this name, or satisfies a predicate.

        A ``*`` in the name is a character like any other. A name costs O(log n) plus what arrived since it was last
        asked for; a predicate runs over the window, newest first.

        Raises:
            TypeError: *which* is neither a name nor callable.
            ValueError: No signal could have this name.
        """
        if callable(which):
            return any(map(which, reversed(self._events())))
        if not isinstance(which, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a list of names is a common mistake
            raise TypeError(f"which must be a name or a function of an event, not {which!r}; for patterns: sense()")
        return self._count("exact", which) > 0

    def get_op_signals(self, operation_id: int, pattern: Pattern | None = None) -> list[SignalEvent]:
        """Return the live signals of one operation, oldest arrival first; 0 gives those of no operation.

        Raises:
            TypeError: *operation_id* is no ``int``, or *pattern* has the wrong type.
            ValueError: *operation_id* is negative or too large, or a part of *pattern* is empty.
        """
        check_context(None, operation_id)
        events = [event for event in self._events() if event.operation_id == operation_id]
        return events if pattern is None else list(filter(as_predicate(pattern), events))

    def get_op(self, operation_id: int) -> OperationSignalSummary | None:
        """Return what one operation has signalled; None if nothing of it is live, and for 0, which is no operation.

        Raises:
            TypeError: *operation_id* is no ``int``.
            ValueError: *operation_id* is negative or too large.
        """
        events = self.get_op_signals(operation_id)
        if not events or operation_id == 0:
            return None
        stamps = [event.timestamp for event in events]
        return OperationSignalSummary(
            operation_id=operation_id,
            key=next((event.key for event in events if event.key is not None), None),
            first_at=datetime.fromtimestamp(min(stamps), UTC),
            last_at=datetime.fromtimestamp(max(stamps), UTC),
            signals=tuple(event.signal for event in events),
        )

    def count_recent_by_prefix(
        self, prefix: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Return how many live signals have a name that starts with *prefix*, a plain string.

        The other counts take the same times and cost the same: O(log n) plus what arrived since the same question was
        last asked, for the 256 questions asked last.

        Args:
            prefix: The text; ``x:pri1`` also counts ``x:pri10`` (see `count_recent_in_scope`), ``""`` counts all.
            since: Epoch seconds or an aware ``datetime``; a stamp equal to it counts.
            within: Seconds (or a ``timedelta``) back from now. Neither: the whole window.

        Raises:
            TypeError: *prefix* is no ``str``, or both times are given.
            ValueError: *since* is no instant (a naive ``datetime``, NaN), or *within* no duration of 0 seconds or more.
        """
        return self._count("prefix", prefix, since, within)

    def count_recent_in_scope(
        self, scope: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Return how many live signals lie in *scope*: have that name, or continue it with ``:``.

        Times, cost and errors as in `count_recent_by_prefix`; a *scope* no signal could have is a ``ValueError``.
        """
        return self._count("scope", scope, since, within)

    def count_recent_exact(
        self, name: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Return how many live signals are called exactly *name*.

        Times, cost and errors as in `count_recent_by_prefix`; a *name* no signal could have is a ``ValueError``.
        """
        return self._count("exact", name, since, within)

    def count_recent_by_contains(
        self, text: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Return how many live signals have *text* somewhere in their name.

        Times, cost and errors as in `count_recent_by_prefix`.
        """
        return self._count("contains", text, since, within)


def lower_bound(since: float | datetime | None, within: float | timedelta | None, now: float) -> float:
    """Return the lowest stamp that counts; raises as the counts do."""
    if within is None:
        return -math.inf if since is None else since_seconds("since", since)
    if since is not None:
        raise TypeError("pass since or within, not both")
    return now - seconds("within", within, zero=True)


def as_predicate(which: Pattern | Predicate) -> Predicate:
    """Return the function of an event that *which* stands for; raises as `compile_pattern` does."""
    if callable(which):
        return which
    matches = compile_pattern(which)
    return lambda event: matches(event.signal)
