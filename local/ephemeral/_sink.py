"""SignalSink: the process's memory of what has just happened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat, starmap
from types import TracebackType
from typing import Any, Final, Self, overload

from ._checks import seconds, whole_number
from ._counts import CountKind
from ._ids import next_id
from ._listeners import Listener, ListenerErrorHandler, Listeners, Subscription
from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent, check_context, known_names, validate_name
from ._turn import Turn
from ._window import Record, Window

Predicate = Callable[[SignalEvent], bool]
"""Tells whether an event is meant; runs outside the sink's lock, in the caller's thread."""

# Arrivals that may wait to be sorted in, at least: a small window must not be trimmed at every other raise.
_MIN_PENDING: Final = 1024


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """What a sink has done so far; ``raised == live + cleared + forgotten``.

    Attributes:
        raised: Signals raised into it.
        live: Signals in the window now.
        cleared: Signals taken out by a clear.
        forgotten: Signals that left by age or capacity.
        listeners: Open subscriptions, open ``listen`` blocks included.
        listener_errors: How often a listener raised.
        deliveries_cut: How often listeners were not called, because raises had nested 64 deep.
    """

    raised: int
    live: int
    cleared: int
    forgotten: int
    listeners: int
    listener_errors: int
    deliveries_cut: int


class SignalSink:
    """A bounded window of the signals raised last.

    Usable bare, or as a ``with`` or ``async with`` block, whose end ends the `listen` streams. Every method may be
    called from any thread. Bounds are exact at every query, in a busy sink and in a silent one.

    Args:
        max_capacity: Most signals it keeps, at least 1; the oldest arrivals go first.
        max_age: Seconds (or a ``timedelta``) it keeps one, more than 0, by the signal's own stamp.
        clock: Returns UTC epoch seconds, for tests. None: the wall clock read once, then the monotonic one, so that a
            wall clock that is set neither empties nor freezes the window.
        on_listener_error: Called with the event and the exception of a listener that raised, in the raiser's thread,
            after it was logged; what it raises itself is logged too.

    Raises:
        ValueError: *max_capacity* or *max_age* is out of range.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_drained",
        "_is_open",
        "_listeners",
        "_offset",
        "_origin",
        "_pending",
        "_pending_limit",
        "_turn",
        "_window",
    )

    def __init__(
        self,
        max_capacity: int = 1000,
        max_age: float | timedelta = 60.0,
        *,
        clock: Callable[[], float] | None = None,
        on_listener_error: ListenerErrorHandler | None = None,
    ) -> None:
        self._clock = time.monotonic if clock is None else clock
        self._offset = time.time() - time.monotonic() if clock is None else 0.0
        self._origin = f"{next_id():016x}"
        # Arrivals that no query has asked for yet. Appending is atomic and takes no lock, which would make four
        # threads 19 times slower. No maxlen: it would lose arrivals uncounted, and a resize those under way.
        self._pending: deque[Record] = deque()
        self._drained = 0
        self._turn = Turn()
        self._window = Window(whole_number("max_capacity", max_capacity), seconds("max_age", max_age))
        self._pending_limit = max(_MIN_PENDING, max_capacity)
        self._listeners = Listeners(on_listener_error, self.now)
        self._is_open = False

    # Raising

    @overload
    def raise_signal(
        self, signal: str, key: str | None = None, *, operation_id: int = 0, payload: Any = None
    ) -> None: ...
    @overload
    def raise_signal(self, signal: SignalEvent) -> None: ...
    def raise_signal(
        self, signal: str | SignalEvent, key: str | None = None, *, operation_id: int = 0, payload: Any = None
    ) -> None:
        """Store a signal, then call its listeners, in this thread and in the order they subscribed.

        Takes no lock and never blocks, so it may be called from any thread, a signal handler or a finalizer; the time
        is what the listeners take. The stored event, and every listener, get *payload* itself: do not change it.

        Args:
            signal: The name; or an event, which keeps its stamp, and its origin if it has one.
            key: What it is about, for example a customer.
            operation_id: The operation that raises it; 0 for none.
            payload: Any object.

        Raises:
            TypeError: The name, *key* or *operation_id* has the wrong type.
            ValueError: The name is empty, longer than 512 bytes of UTF-8 or not printable; *operation_id* or the
                event's stamp is out of range.
        """
        try:
            name = known_names.get(signal)  # type: ignore[arg-type]  # an event is no known name either
        except TypeError:  # an event with an unhashable payload
            name = None
        if name is None:
            if isinstance(signal, SignalEvent):
                self._raise_event(signal, key, operation_id, payload)
                return
            name = validate_name(signal)
        if key is not None or operation_id != 0:
            check_context(key, operation_id)
        pending = self._pending
        record = (name, operation_id, key, self._clock() + self._offset, payload, None, self._origin)
        pending.append(record)
        if len(pending) > self._pending_limit:
            self._relieve()
        if self._listeners.current:
            self._listeners.deliver(record)

    def _raise_event(self, event: SignalEvent, key: object, operation_id: object, payload: object) -> None:
        if key is not None or operation_id != 0 or payload is not None:
            raise TypeError("an event has its own key, operation_id and payload; pass the event alone")
        event = SignalEvent(*event[:6], origin=event.origin or self._origin)
        self._pending.append(event)
        if len(self._pending) > self._pending_limit:
            self._relieve()
        if self._listeners.current:
            self._listeners.deliver(event)

    def subscribe(self, listener: Listener, pattern: Pattern | None = None) -> Subscription:
        """Have *listener* called with each event raised from now on.

        It runs in the raiser's thread, after the event is stored, and a raise under way keeps the listeners it began
        with. If it raises, raiser and other listeners go on: the error is counted, logged and given to
        ``on_listener_error``; only ``KeyboardInterrupt`` and ``SystemExit`` come out. A signal that is raised 64
        listeners deep is stored, but its listeners are not called.

        Args:
            listener: A plain function of one event.
            pattern: Which names it wants; None for all.

        Raises:
            TypeError: *listener* is async (use `listen`) or not callable, or *pattern* has the wrong type.
            ValueError: *pattern* has an empty part.
        """
        return self._listeners.add(listener, pattern)

    # Asking

    def now(self) -> float:
        """Return the sink's time, UTC epoch seconds, as stamps are made from it."""
        return self._clock() + self._offset

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
        return list(filter(_predicate(which), self._events()))

    def detect(self, which: str | Predicate) -> bool:
        """Whether a live signal has exactly this name, or satisfies a predicate.

        A ``*`` in the name is a character like any other. A name costs O(log n) plus what arrived since it was last
        asked for; a predicate runs over the window, newest first.

        Raises:
            TypeError: *which* is neither a name nor callable.
            ValueError: The name is none a signal could have.
        """
        if callable(which):
            return any(map(which, reversed(self._events())))
        return self._count("exact", which, None, None) > 0

    def __len__(self) -> int:
        now = self.now()
        with self._turn:
            self._settle(now)
            return len(self._window)

    def __bool__(self) -> bool:
        """Say True, an empty sink too: ``sink or SignalSink()`` must not replace it."""
        return True

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
            TypeError: *prefix* is no ``str``, both times are given, or one has the wrong type.
            ValueError: *since* is a naive ``datetime`` or not a number, or *within* negative.
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

    def statistics(self) -> SinkStatistics:
        """Return the counters, all of one instant."""
        now = self.now()
        with self._turn:
            self._settle(now)
            live, cleared = len(self._window), self._window.removed
            raised = self._drained
        return SinkStatistics(
            raised=raised,
            live=live,
            cleared=cleared,
            forgotten=raised - live - cleared,
            listeners=len(self._listeners),
            listener_errors=self._listeners.errors,
            deliveries_cut=self._listeners.cut,
        )

    # Bounds and blocks

    @property
    def max_capacity(self) -> int:
        """Most signals it keeps."""
        return self._window.max_capacity

    @property
    def max_age(self) -> float:
        """Seconds it keeps a signal."""
        return self._window.max_age

    def __enter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("the sink is open already; one block at a time")
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._is_open = False

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, tb)

    def __repr__(self) -> str:
        return f"<SignalSink {len(self)} of {self.max_capacity} signals, {self.max_age:g} s, origin {self._origin}>"

    # Inside

    def _settle(self, now: float) -> None:
        """Move the arrivals so far into the window and trim it; in a turn only."""
        pending = self._pending
        count = len(pending)  # later arrivals are the next query's
        if count:
            self._window.add(list(starmap(pending.popleft, repeat((), count))))
            self._drained += count
        self._window.trim(now)

    def _relieve(self) -> None:
        """Settle if nobody is at it: a raise never waits."""
        now = self.now()
        if self._turn.try_take():
            try:
                self._settle(now)
            finally:
                self._turn.give_back()

    def _events(self) -> list[SignalEvent]:
        now = self.now()
        with self._turn:
            self._settle(now)
            return self._window.events()

    def _count(
        self, kind: CountKind, text: str, since: float | datetime | None, within: float | timedelta | None
    ) -> int:
        now = self.now()
        bound = _lower_bound(since, within, now)
        with self._turn:
            self._settle(now)
            return self._window.count(kind, text, bound)

    def _remove(self, which: Predicate) -> int:
        """Take the live signals that satisfy *which* out of the window, without a signal; return how many."""
        doomed = list(filter(which, self._events()))  # held until the end: an id() stays theirs as long as they live
        with self._turn:
            return self._window.remove(set(map(id, doomed))) if doomed else 0


def _predicate(which: Pattern | Predicate) -> Predicate:
    if callable(which):
        return which
    matches = compile_pattern(which)
    return lambda event: matches(event.signal)


def _lower_bound(since: float | datetime | None, within: float | timedelta | None, now: float) -> float:
    """Return the lowest stamp that counts."""
    if since is None and within is None:
        return float("-inf")
    if within is not None:
        if since is not None:
            raise TypeError("pass since or within, not both")
        return now - seconds("within", within, zero=True)
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError(f"since must be an aware datetime, not {since!r}; write datetime.now(UTC)")
        return since.astimezone(UTC).timestamp()
    if isinstance(since, bool) or not isinstance(since, int | float):
        raise TypeError(f"since must be epoch seconds or an aware datetime, not {since!r}")
    if since != since:  # noqa: PLR0124  only NaN differs from itself
        raise ValueError("since must be a number of epoch seconds, not NaN")
    return float(since)
