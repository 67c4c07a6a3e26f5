"""Who is told of a signal: the subscriptions of one sink, and the call that harms neither raiser nor neighbour."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import logging
import sys
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self, cast

from ._patterns import Matcher
from ._signals import Predicate, RaisedEvent, SignalEvent
from ._turn import reentrant_lock
from ._window import Record

Listener = Callable[[SignalEvent], object]
"""Called with each event, in the thread that raised it; what it returns is ignored."""

ListenerErrorHandler = Callable[[SignalEvent, BaseException], object]
"""Called with the event and the error of a listener that raised."""

MAX_NESTING: Final = 64

_logger = logging.getLogger("ephemeral")


# One entry for each delivery under way, of all sinks and threads: listeners that raise back and forth between two sinks
# nest too. Appending and popping are atomic, and cost half of a thread-local counter.
_under_way: list[None] = []


Audience = tuple[tuple[Listener, Matcher | None], ...]
NOBODY: Final[Audience] = ()


class Subscription:
    """A place among those who are told of signals; leaving its ``with`` block or calling `close` ends it."""

    def __init__(self, listeners: Listeners, number: int) -> None:
        self._listeners = listeners
        self._number = number

    def close(self) -> None:
        """End the subscription, from the next raise on; callable again, and from any thread. Never blocks for long."""
        self._listeners.remove(self._number)

    def close_with(self, owner: object) -> None:
        """Close it as *owner* is garbage collected; until then it keeps neither *owner* nor the sink alive."""
        weakref.finalize(owner, _remove, weakref.ref(self._listeners), self._number).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _remove(listeners: weakref.ref[Listeners], number: int) -> None:
    live = listeners()
    if live is not None:
        live.remove(number)


class Listeners:
    """The listeners of one sink, in the order they subscribed.

    Attributes:
        current: What a raise calls: (listener, matcher or None for every name). Replaced as a whole, so that a raise
            under way keeps the one it has.
        watchers: Those of them that were added with ``on_removed``, which come first. What another sink raised they are
            told where it arrives.
        others: All but these, who are told that on their loop or thread.
        cut: How many deliveries were left out at the nesting bound.
    """

    def __init__(self, on_error: ListenerErrorHandler | None, now: Callable[[], float]) -> None:
        self.watchers = self.others = self.current = NOBODY
        self.cut = 0
        self._on_error = on_error
        self._now = now
        self._table: dict[int, tuple[Listener, Matcher | None]] = {}
        self._watching: dict[int, tuple[Listener, Matcher | None]] = {}
        self._streams: dict[int, Callable[[], None]] = {}  # what ends each, by its number
        self._on_removed: dict[int, Callable[[Predicate | None], None]] = {}  # what tells watchers, likewise
        self._numbers = itertools.count()
        self._error_lock = reentrant_lock()
        self._errors = 0
        self._cut_logged_at = float("-inf")
        # Reentrant: a finalizer may close its subscription in the middle of another change by the same thread.
        self._lock = reentrant_lock()
        self._changes = 0

    def __len__(self) -> int:
        return len(self._table) + len(self._watching)

    @property
    def errors(self) -> int:
        """How often a listener has raised."""
        return self._errors

    def add(
        self,
        listener: Listener,
        matches: Matcher | None,
        *,
        on_close: Callable[[], None] | None = None,
        on_removed: Callable[[Predicate | None], None] | None = None,
    ) -> Subscription:
        """Add *listener* at the end; `close_streams` calls *on_close*, `tell_removed` calls *on_removed*.

        Raises:
            TypeError: *listener* is async or not callable.
        """
        _require_plain(listener)
        number = next(self._numbers)
        with self._lock:
            if on_removed is None:
                self._table[number] = (listener, matches)
            else:
                self._watching[number] = (listener, matches)
                self._on_removed[number] = on_removed
            if on_close is not None:
                self._streams[number] = on_close
            self._publish()
        return Subscription(self, number)

    def remove(self, number: int) -> None:
        """Remove the listener that was added with *number*, if it is still there."""
        with self._lock:
            self._streams.pop(number, None)
            self._on_removed.pop(number, None)
            if self._table.pop(number, None) or self._watching.pop(number, None):
                self._publish()

    def close_streams(self) -> None:
        """End the listeners that were added with ``on_close``."""
        with self._lock:
            streams = tuple(self._streams.values())
        for end in streams:
            end()

    def tell_removed(self, which: Predicate | None) -> None:
        """Tell the watchers, in this thread, that the signals that satisfy *which* (None: all) were taken back."""
        with self._lock:
            told = tuple(self._on_removed.values())
        for on_removed in told:
            on_removed(which)

    def deliver(self, record: Record, to: Audience | None = None) -> None:
        """Call each listener, or each in *to*, that wants *record*, in this thread.

        Only a request to end the program comes out.
        """
        if _under_way and len(_under_way) >= MAX_NESTING and _nesting() > MAX_NESTING:
            self._cut_off(record)
            return
        _under_way.append(None)
        event = None
        try:
            for listener, matches in self.current if to is None else to:
                if matches is None or matches(record[0]):
                    if event is None:
                        # event_of(), written out: a call takes 50 ns.
                        event = RaisedEvent(record) if type(record) is tuple else cast("SignalEvent", record)
                    try:
                        listener(event)
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except BaseException as error:  # noqa: BLE001  the contract: whatever a listener raises stays here
                        self._report(listener, event, error)
        finally:
            del _under_way[-1]

    def _publish(self) -> None:
        self._changes += 1
        while True:
            changes = self._changes
            self.watchers = tuple(self._watching.values())
            self.others = tuple(self._table.values())
            self.current = self.watchers + self.others
            if changes == self._changes:  # else a finalizer changed the table before the line above was done
                return

    def _report(self, listener: Listener, event: SignalEvent, error: BaseException) -> None:
        with self._error_lock:
            self._errors += 1
        _log("listener", listener, event, error)
        if self._on_error is None:
            return
        try:
            self._on_error(event, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as worse:  # noqa: BLE001  as for a listener
            _log("on_listener_error", self._on_error, event, worse)

    def _cut_off(self, record: Record) -> None:
        with self._error_lock:
            self.cut += 1
            now = self._now()
            is_first = not 0 <= now - self._cut_logged_at < 1
            if is_first:
                self._cut_logged_at = now
        if is_first:
            _logger.error(
                "signal %r was raised %d listeners deep: it is stored, its listeners are not called; a listener"
                " raises what it listens to",
                record[0],
                MAX_NESTING,
            )


def _log(what: str, culprit: object, event: SignalEvent, error: BaseException) -> None:
    # Logging may fail too (a handler that raises, a repr that does, a full stack), and then nobody is left to tell.
    with contextlib.suppress(Exception):
        try:
            shown = repr(culprit)
        except Exception:  # noqa: BLE001  it is the user's
            shown = object.__repr__(culprit)
        _logger.error("%s %s raised on signal %r", what, shown, event.signal, exc_info=error)


def _nesting() -> int:
    """Return how many deliveries this thread is in, read off its stack."""
    depth = 0
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  documented, just not typed as public
    while frame is not None:
        depth += frame.f_code is Listeners.deliver.__code__
        frame = frame.f_back
    return depth


def _require_plain(listener: Any) -> None:
    if not callable(listener):
        raise TypeError(f"listener must be callable, not {listener!r}")
    function = listener
    while isinstance(function, functools.partial):
        function = function.func
    for candidate in (function, type(function).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"listener {listener!r} is async, and a signal waits for nobody; read signals in a task instead:"
                " `async with sink.listen(pattern) as events: async for event in events: ...`"
            )
