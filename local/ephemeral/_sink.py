"""SignalSink: the process's memory of what has just happened."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Container, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, cast, overload

from ._checks import seconds, whole_number
from ._clears import SignalClears
from ._counts import CountKind
from ._drain_requests import DrainRequests
from ._ids import next_id
from ._ladder_status import LadderStatus, show_ladders
from ._listeners import Listener, ListenerErrorHandler, Listeners, Subscription
from ._patterns import Pattern, compile_pattern
from ._questions import SignalQuestions, lower_bound
from ._signals import Predicate, SignalEvent, check_context, known_names, validate_name
from ._sink_bus import SharedQuestions, SinkBus
from ._streams import SignalStream, wait_for_signal
from ._turn import Turn
from ._window import Record, Window
from .abc import SignalBackend

# Arrivals that may wait to be sorted in, at least: a small window must not be trimmed at every other raise.
_MIN_PENDING: Final = 1024


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """What a sink has done so far; ``raised == live + cleared + forgotten``.

    Attributes:
        raised: Signals raised into it, those of other sinks that the bus brought included.
        live: Signals in the window now.
        cleared: Signals taken out by a clear.
        forgotten: Signals that left by age or capacity.
        listeners: Open subscriptions, `SignalSink.listen` blocks and coordinators that react to signals included.
        listener_errors: How often a listener raised.
        deliveries_cut: How often listeners were not called, because raises had nested 64 deep.
        undelivered: Signals of other sinks whose listeners were not called, because their loop was too far behind.
        bus: What the backend has done so far, as its own frozen dataclass; None without one.
    """

    raised: int
    live: int
    cleared: int
    forgotten: int
    listeners: int
    listener_errors: int
    deliveries_cut: int
    undelivered: int = 0
    bus: Any = None


class SignalSink(SignalQuestions, SignalClears, DrainRequests, SharedQuestions):
    """A bounded window of the signals raised last.

    Usable bare, or as a ``with`` or ``async with`` block, whose end ends the `listen` streams. Every method may be
    called from any thread. Bounds are exact at every query, in a busy sink and in a silent one. A query that waits for
    another thread waits microseconds; a signal handler or finalizer that interrupted one in its own thread gets a
    ``RuntimeError`` from it (raising is always possible there).

    With a *backend* it shares its signals with the sinks of other workers: theirs come into its window and reach its
    listeners, on the loop that opened it (``async with``) or on a thread of its own (``with``).

    Args:
        max_capacity: Most signals it keeps, at least 1; the oldest arrivals go first.
        max_age: Seconds (or a ``timedelta``) it keeps one, more than 0, by the signal's own stamp.
        backend: The bus that joins it to others, for this sink alone; open the sink as a block then. None: it is alone.
        clock: Returns UTC epoch seconds, for tests. None: the wall clock read once, then the monotonic one, so that a
            wall clock that is set neither empties nor freezes the window.
        on_listener_error: Called with the event and the exception of a listener that raised, in the raiser's thread,
            after it was logged; what it raises itself is logged too.

    Raises:
        ValueError: *max_capacity* or *max_age* is out of range.
        TypeError: *backend* is no `SignalBackend`.
    """

    __slots__ = (
        "__weakref__",
        "_bus",
        "_clock",
        "_drained",
        "_is_open",
        "_listeners",
        "_offset",
        "_origin",
        "_pending",
        "_pending_limit",
        "_plain_names",
        "_turn",
        "_window",
    )

    def __init__(
        self,
        max_capacity: int = 1000,
        max_age: float | timedelta = 60.0,
        *,
        backend: SignalBackend | None = None,
        clock: Callable[[], float] | None = None,
        on_listener_error: ListenerErrorHandler | None = None,
    ) -> None:
        self._clock = time.monotonic if clock is None else clock
        self._offset = time.time() - time.monotonic() if clock is None else 0.0
        # Arrivals that no query has asked for yet. Appending is atomic and takes no lock, which would make four
        # threads 19 times slower; so is taking a slice, at a tenth of what a deque takes to be emptied.
        self._pending: list[Record] = []
        self._drained = 0
        self._turn = Turn()
        self._window = Window(whole_number("max_capacity", max_capacity), seconds("max_age", max_age))
        self._pending_limit = max(_MIN_PENDING, max_capacity)
        self._listeners = Listeners(on_listener_error, self.now)
        self._is_open = False
        self._bus: SinkBus | None = None
        # Names that need no check and go nowhere else; none with a bus, which then costs a sink without one nothing.
        self._plain_names: Container[str | SignalEvent] = known_names
        self._renew_origin()
        if backend is not None:
            if not isinstance(cast("object", backend), SignalBackend):
                # Its type alone: a URL may hold a password.
                raise TypeError(
                    f"backend must be a SignalBackend, not {type(backend).__name__};"
                    " for a URL: ephemeral_redis.RedisSignalBackend.from_url()"
                )
            self._join(backend)
        _sinks.add(self)

    # Raising

    @overload
    def raise_signal(
        self, signal: str, key: str | None = None, *, operation_id: int = 0, payload: Any = None
    ) -> None: ...
    @overload
    def raise_signal(self, signal: SignalEvent) -> None: ...
    def raise_signal(
        # Keyword-only to type checkers: CPython 3.11 calls a function that really has such parameters 30 ns slower.
        self,
        signal: str | SignalEvent,
        key: str | None = None,
        operation_id: int = 0,
        payload: Any = None,
    ) -> None:
        """Store a signal, then call its listeners, in this thread and in the order they subscribed.

        Takes no lock and never blocks, so it may be called from any thread, a signal handler or a finalizer; the time
        is what the listeners take. Every listener and query gets *payload* itself: do not change it afterwards.

        Args:
            signal: The name; or an event, which keeps its stamp, and its origin if it has one.
            key: What it is about, for example a customer.
            operation_id: The operation that raises it; 0 for none.
            payload: Any object; with a backend None, bool, a 64-bit int, float, str, bytes, or lists, tuples and
                string-keyed dicts of these, at most 8 deep and 64 KiB packed.

        Raises:
            TypeError: The name, *key*, *operation_id* or *payload* has the wrong type, or something was given beside an
                event.
            ValueError: The name is empty, longer than 512 bytes of UTF-8 or not printable, *operation_id* is out of
                range, or *key* or *payload* is too large or too deep for the bus.
        """
        try:
            is_plain = signal in self._plain_names
        except TypeError:  # neither a str nor an event: those have a hash
            is_plain = False
        record: Record
        if is_plain:
            if key is not None or operation_id != 0:
                check_context(key, operation_id)
            clock = self._clock
            record = (signal, operation_id, key, clock() + self._offset, payload, None, self._origin)  # type: ignore[assignment]  # an event is no plain name
        else:
            record = self._checked(signal, key, operation_id, payload)
        pending = self._pending
        pending.append(record)
        if len(pending) > self._pending_limit:
            self._relieve()
        if self._listeners.current:
            self._listeners.deliver(record)

    def raise_made(self, signal: str, operation_id: int) -> None:
        """Raise a signal whose name was made of parts that have been checked, as `raise_signal` does.

        For ladders, whose names are new with each item: checking one takes longer than all the rest.
        """
        record: Record = (signal, operation_id, None, self._clock() + self._offset, None, None, self._origin)
        if self._bus is not None:
            self._bus.publish(record)
        self._pending.append(record)
        if len(self._pending) > self._pending_limit:
            self._relieve()
        if self._listeners.current:
            self._listeners.deliver(record)

    def _checked(self, signal: str | SignalEvent, key: str | None, operation_id: int, payload: Any) -> Record:
        """Check all that a raise was given, make its record, and send that on if there is a bus."""
        record: Record
        if isinstance(signal, SignalEvent):
            if key is not None or operation_id != 0 or payload is not None:
                raise TypeError("an event has its own key, operation_id and payload; pass the event alone")
            # Checked again: whoever changed a copy with _replace() went around the checks.
            record = SignalEvent(*signal[:6], signal.origin or self._origin)
        else:
            validate_name(signal)
            check_context(key, operation_id)
            record = (signal, operation_id, key, self.now(), payload, None, self._origin)
        if self._bus is not None:
            self._bus.publish(self._bus.portable(record))
        return record

    # Listening

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
        return self._listeners.add(listener, None if pattern is None else compile_pattern(pattern))

    def watch(
        self, listener: Listener, pattern: Pattern, *, on_removed: Callable[[Predicate | None], None]
    ) -> Subscription:
        """Subscribe *listener* as `subscribe` does, and have *on_removed* called when signals are taken back.

        That is told in the thread of whoever clears, after the window has let go of them: which events are meant, those
        that had left by capacity included; None: all. It must not raise. *listener* is called ahead of those who
        subscribe, and with what the bus brings in the bus's own thread. For coordinators.
        """
        return self._listeners.add(listener, compile_pattern(pattern), on_removed=on_removed)

    def listen(self, pattern: Pattern | None = None, buffer: int = 1000) -> SignalStream:
        """Return a stream of the signals raised while its block is open.

            async with sink.listen("order.*") as events:
                async for event in events: ...

        Args:
            pattern: Which names; None for all.
            buffer: How many may wait for the reader, at least 1. Beyond that the oldest are lost, and counted in
                ``events.dropped``.

        Raises:
            TypeError: *pattern* has the wrong type.
            ValueError: *pattern* has an empty part, or *buffer* is below 1.
        """
        return SignalStream(self._listeners, pattern, buffer)

    async def wait_for(self, pattern: Pattern, timeout: float | timedelta | None = None) -> SignalEvent:
        """Wait for the first signal raised from now on whose name matches, and return it.

        What is in the window already does not count: ask `sense` for that. Always a cancellation point.

        Args:
            pattern: Which names.
            timeout: Seconds to wait at most, 0 or more; None: for ever.

        Raises:
            TimeoutError: Nothing matched in time.
            TypeError: *pattern* has the wrong type.
            ValueError: *pattern* has an empty part, or *timeout* is negative or not finite.
        """
        return await wait_for_signal(self._listeners, pattern, timeout)

    # Asking, beside what SignalQuestions has

    def now(self) -> float:
        """Return the sink's time, UTC epoch seconds, as stamps are made from it."""
        return self._clock() + self._offset

    def __len__(self) -> int:
        now = self.now()
        with self._turn:
            self._settle(now)
            return len(self._window)

    def __bool__(self) -> bool:
        """Say True, an empty sink too: ``sink or SignalSink()`` must not replace it."""
        return True

    def statistics(self) -> SinkStatistics:
        """Return the counters; those of the window are of one instant."""
        now = self.now()
        with self._turn:
            self._settle(now)
            live, cleared, raised = len(self._window), self._window.removed, self._drained
        return SinkStatistics(
            raised=raised,
            live=live,
            cleared=cleared,
            forgotten=raised - live - cleared,
            listeners=len(self._listeners),
            listener_errors=self._listeners.errors,
            deliveries_cut=self._listeners.cut,
            undelivered=0 if self._bus is None else self._bus.undelivered,
            bus=None if self._bus is None else self._bus.backend.statistics(),
        )

    def get_ladders(self) -> tuple[LadderStatus, ...]:
        """Return the ladders on this sink whose blocks are open, as this process sees them, by group; no I/O.

        On another thread than their loop's the counters of a group may be of two instants.
        """
        return show_ladders(self)

    # Bounds and blocks

    @property
    def origin(self) -> str:
        """Which sink this is, in the events it raises: unique among processes, renewed after a fork."""
        return self._origin

    @property
    def max_capacity(self) -> int:
        """Most signals it keeps."""
        return self._window.max_capacity

    @property
    def max_age(self) -> float:
        """Seconds it keeps a signal."""
        return self._window.max_age

    def update_window_size(self, max_capacity: int | None = None, max_age: float | timedelta | None = None) -> None:
        """Change the bounds, at once and both or neither; None keeps one. What falls out of smaller ones is gone.

        Raises:
            ValueError: *max_capacity* is below 1 or no ``int``, or *max_age* no positive number of seconds.
        """
        capacity = None if max_capacity is None else whole_number("max_capacity", max_capacity)
        age = None if max_age is None else seconds("max_age", max_age)
        now = self.now()
        lowest = now - min(self.max_age, self.max_age if age is None else age)
        with self._turn:
            self._settle(now)  # by the bounds under which they arrived
            self._window.max_capacity = self._window.max_capacity if capacity is None else capacity
            self._window.max_age = self._window.max_age if age is None else age
            self._pending_limit = max(_MIN_PENDING, self._window.max_capacity)
            self._settle(now)
        # What was too old by either age is gone for good; what only capacity pushed out is not.
        self._listeners.tell_removed(lambda event: event.timestamp < lowest)

    def __enter__(self) -> Self:
        self._begin()
        if self._bus is not None:
            with self._ending_on_error():
                self._bus.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()
        if self._bus is not None:
            self._bus.close()

    async def __aenter__(self) -> Self:
        self._begin()
        if self._bus is not None:
            with self._ending_on_error():
                await self._bus.open_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._end()
        if self._bus is not None:
            await self._bus.close_async()

    @property
    def backend(self) -> SignalBackend | None:
        """The bus that joins it to others; None: it is alone."""
        return None if self._bus is None else self._bus.backend

    def __repr__(self) -> str:
        return f"<SignalSink {self._origin}: {len(self)} of {self.max_capacity} signals, {self.max_age:g} s>"

    # Inside

    def _begin(self) -> None:
        if self._is_open:
            raise RuntimeError("the sink is open already: it has one block at a time")
        self._is_open = True

    def _end(self) -> None:
        self._is_open = False
        self._listeners.close_streams()

    @contextlib.contextmanager
    def _ending_on_error(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _join(self, backend: SignalBackend) -> None:
        self._plain_names = ()
        self._bus = SinkBus(
            backend,
            now=self.now,
            store=self._store,
            deliver=lambda record: self._listeners.deliver(record, self._listeners.others),
            renew_origin=self._take_origin,
            statistics=self.statistics,
            get_ladders=self.get_ladders,
        )
        self._origin = backend.origin

    def _store(self, records: Sequence[Record]) -> None:
        self._pending.extend(records)
        if len(self._pending) > self._pending_limit:
            self._relieve()
        # At once: what the window shows, those who react to it know.
        watchers = self._listeners.watchers
        if watchers:
            for record in records:
                self._listeners.deliver(record, watchers)

    def _raise_here(self, signal: str, key: str | None) -> None:
        record: Record = (signal, 0, key, self.now(), None, None, self._origin)
        self._store((record,))
        self._listeners.deliver(record, self._listeners.others)

    def _take_origin(self, origin: str) -> None:
        self._origin = origin

    def _settle(self, now: float) -> None:
        """Move the arrivals so far into the window and trim it; in a turn only."""
        if self._pending:
            arrivals = self._pending[:]
            del self._pending[: len(arrivals)]  # what came since then stays
            self._drained += len(arrivals)
            self._window.add(arrivals)
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
        self,
        kind: CountKind,
        text: str,
        since: float | datetime | None = None,
        within: float | timedelta | None = None,
    ) -> int:
        now = self._clock() + self._offset
        lowest = lower_bound(since, within, now)
        if not self._pending:  # looked at first: what came before this call was raised is not missed
            standing = self._window.standing_count(kind, text, lowest, now)
            if standing is not None:
                return standing
        with self._turn:
            self._settle(now)
            return self._window.count(kind, text, lowest)

    def _remove(self, which: Predicate | None) -> int:
        """Take the live signals that satisfy *which* (None: all) out of the window and return how many."""
        # Held until the end: an id() stays theirs as long as they live.
        doomed = self._events() if which is None else list(filter(which, self._events()))
        with self._turn:
            count = self._window.remove(set(map(id, doomed))) if doomed else 0
        self._listeners.tell_removed(which)
        return count

    def _renew_origin(self) -> None:
        self._origin = f"{next_id():016x}"

    @staticmethod
    def _renew_origins() -> None:
        for sink in list(_sinks):
            if sink.backend is None:  # else that renews it
                sink._renew_origin()  # noqa: SLF001  its own class


_sinks: weakref.WeakSet[SignalSink] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):  # a forked sink is another one; after _ids, whose new start it needs
    os.register_at_fork(after_in_child=SignalSink._renew_origins)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  its own module
