"""A sink's side of its bus: what goes out, and how what others raise reaches this sink's listeners."""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from ._checks import optional_seconds
from ._futures import wait_for_future
from ._loops import Loop, current_loop
from ._payloads import check_portable_key, check_portable_path, portable_payload
from ._questions import lower_bound
from ._signals import validate_name
from ._window import Record
from .abc import BusUnavailableError, SignalBackend

if TYPE_CHECKING:
    from ._ladder_status import LadderStatus
    from ._sink import SinkStatistics

CLOSE_SECONDS: Final = 2.0
"""How long leaving a sink's block waits for what is still to be sent."""

MAX_INBOX: Final = 10_000
"""Signals of others that may wait for a busy loop to call its listeners; the window has them all the same."""

_CALLS_PER_TURN: Final = 128
_FOREVER_SECONDS: Final = 10 * 365 * 86400.0
_logger = logging.getLogger("ephemeral")


class SharedQuestions(ABC):
    """What a sink tells of its bus, and of the sinks that are joined by it."""

    __slots__ = ()
    _bus: SinkBus | None

    @abstractmethod
    def now(self) -> float:
        """Return the sink's time."""

    @abstractmethod
    def count_recent_in_scope(
        self, scope: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Count this sink's signals in a scope."""

    @property
    def is_degraded(self) -> bool:
        """Whether the bus cannot be reached now, so that only this sink's own signals are known.

        False without a backend: nothing is missing then. True before the sink is opened and after.
        """
        return self._bus is not None and self._bus.is_degraded

    async def flush(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the bus has acknowledged all that was raised before this call.

        Always a cancellation point. Without a backend there is nothing to wait for.

        Args:
            timeout: Seconds to wait at most, 0 or more; None: as long as it takes. No time in a sink that is not open.

        Returns:
            Whether it has; if not, all is still queued.

        Raises:
            ValueError: *timeout* is negative or not finite.
        """
        limit = optional_seconds("timeout", timeout, zero=True)
        if self._bus is None:
            await anyio.lowlevel.checkpoint()
            return True
        return await self._bus.flush(limit)

    async def shared_count(
        self, scope: str, *, since: float | datetime | None = None, within: float | timedelta | None = None
    ) -> int:
        """Count the signals in *scope* of all sinks on the bus, those just raised here included.

        Without a backend, and while the bus cannot be reached or the sink is not open, the count of this sink. Always a
        cancellation point.

        Args:
            scope: The scope, of one or two segments.
            since: Epoch seconds of this sink's clock, or an aware ``datetime``; a stamp equal to it counts.
            within: Seconds (or a ``timedelta``) back from now. Neither: as long as the bus keeps signals.

        Raises:
            TypeError: *scope* is no ``str``, or both *since* and *within* are given.
            ValueError: *scope* is empty or has more than two segments, *since* is no instant or *within* no duration.
        """
        _require_shared_scope(scope)
        now = self.now()
        oldest = lower_bound(since, within, now)
        # Longer than any bus keeps anything, and still a number that every clock can subtract.
        within_seconds = min(now - oldest, _FOREVER_SECONDS)
        count = None if self._bus is None else await self._bus.count(scope, within_seconds)
        if count is None:
            await anyio.lowlevel.checkpoint()
            return self.count_recent_in_scope(scope, since=since, within=within)
        return count


class SinkBus:
    """Joins a sink to its backend. It is the receiver that the backend sees.

    Args:
        backend: The bus.
        now: The sink's clock.
        store: Puts records into the sink's window; callable on any thread.
        deliver: Calls the sink's listeners with a record, in the calling thread.
        renew_origin: Gives the sink another origin.
        statistics: Returns the sink's counters.
        get_ladders: Returns what the sink's ladders show.

    Attributes:
        backend: The bus.
        undelivered: Signals of others whose listeners were not called, because the loop was too far behind.
    """

    def __init__(
        self,
        backend: SignalBackend,
        *,
        now: Callable[[], float],
        store: Callable[[Sequence[Record]], None],
        deliver: Callable[[Record], None],
        renew_origin: Callable[[str], None],
        statistics: Callable[[], SinkStatistics],
        get_ladders: Callable[[], tuple[LadderStatus, ...]],
    ) -> None:
        self.backend = backend
        self.now = now
        self.statistics = statistics
        self.get_ladders = get_ladders
        self.publish = backend.publish
        self.undelivered = 0
        self._store = store
        self._deliver = deliver
        self._renew_origin = renew_origin
        self._inbox: deque[Record] = deque()
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._arrived = threading.Event()
        self._is_scheduled = False
        self._is_open = False

    @property
    def is_degraded(self) -> bool:
        """Whether the bus cannot be reached now."""
        return self.backend.is_degraded

    # Out

    def portable(self, record: Record) -> Record:
        """Return *record* as it may leave; raises as `portable_payload` and the checks of key and path do."""
        signal, operation_id, key, timestamp, payload, propagation, origin = record
        if key is not None:
            check_portable_key(signal, key)
        if propagation is not None:
            check_portable_path(signal, propagation.path)
        if payload is None:
            return record
        return (signal, operation_id, key, timestamp, portable_payload(signal, payload), propagation, origin)

    async def flush(self, timeout: float | None) -> bool:
        """Wait until the bus has all that was raised before; False if that did not come within *timeout* seconds.

        False at once if the sink is not open, for then nothing ever comes.
        """
        if not self._is_open:
            await anyio.lowlevel.checkpoint()
            return False
        with anyio.move_on_after(timeout):
            try:
                await wait_for_future(self.backend.flush())
            except BusUnavailableError:
                return False
            return True
        return False

    async def count(self, scope: str, within: float) -> int | None:
        """Return the fleet's count; None while the bus cannot be asked."""
        if self.is_degraded:
            return None
        try:
            return await wait_for_future(self.backend.count(scope, within))
        except BusUnavailableError:
            return None

    # Opening and closing, in a thread or on a loop

    def open(self) -> None:
        """Open from plain code: listeners are called on a thread of the sink's own."""
        self._begin(None)
        # First: from then on what arrives is delivered, and by one thread.
        self._start_delivery()
        opened = self._open_backend()
        try:
            opened.result()
        except BaseException:
            self._end(self.backend.close(0.0).result())
            raise

    def close(self) -> None:
        """Close what `open` opened."""
        self._end(self.backend.close(CLOSE_SECONDS).result())

    async def open_async(self) -> None:
        """Open on a loop, which listeners are called on."""
        self._begin(current_loop())
        opened = self._open_backend()
        try:
            await wait_for_future(opened)
        except BaseException:
            with anyio.CancelScope(shield=True):
                self._end(await wait_for_future(self.backend.close(0.0)))
            raise

    async def close_async(self) -> None:
        """Close what `open_async` opened; waits for `CLOSE_SECONDS` at most, cancelled or not."""
        with anyio.CancelScope(shield=True):
            self._end(await wait_for_future(self.backend.close(CLOSE_SECONDS)))

    def _open_backend(self) -> Future[None]:
        try:
            opened = self.backend.open(self)
        except BaseException:
            self._end(0)  # and leave the backend alone: it is another sink's
            raise
        # Another one than before where the sink is opened for the second time, or in a fork for the first.
        self._renew_origin(self.backend.origin)
        return opened

    def _begin(self, loop: Loop | None) -> None:
        self._loop = loop
        self._is_scheduled = False  # the last loop may have ended before it called
        self._is_open = True

    def _end(self, left: int) -> None:
        self._is_open = False
        self._arrived.set()
        if left:
            signals = "1 signal" if left == 1 else f"{left} signals"
            _logger.warning("the sink was closed with %s that the bus does not have", signals)

    # In: called by the backend, on any thread

    def receive(self, records: Sequence[Record]) -> None:
        """Take signals that other sinks raised: into the window at once, to the listeners on their loop or thread."""
        self._store(records)
        self._inbox.extend(records)
        for _ in range(len(self._inbox) - MAX_INBOX):
            with contextlib.suppress(IndexError):  # the listeners caught up meanwhile
                self._inbox.popleft()
                self.undelivered += 1
        self._wake()

    def renew_origin(self, origin: str) -> None:
        """Be another sink: this process is a fork, and has of its parent's threads none.

        What waited for listeners is the parent's to deliver.
        """
        self._inbox.clear()
        self._arrived = threading.Event()  # a thread that is gone may have held the other's lock
        self._thread = None
        self._renew_origin(origin)

    def missed(self, count: int) -> None:
        """Raise ``bus.gap:<count>`` here, and here only."""
        self.receive([(f"bus.gap:{count}", 0, None, self.now(), None, None, self.backend.origin)])

    def _wake(self) -> None:
        if self._loop is None:
            if self._thread is None:
                self._start_delivery()
            self._arrived.set()
        elif not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._deliver_some)
            except RuntimeError:
                self._inbox.clear()  # the loop has ended, and its listeners with it

    def _deliver_some(self) -> None:
        # First, so that what arrives from here on is scheduled again.
        self._is_scheduled = False
        for _ in range(_CALLS_PER_TURN):
            if not self._inbox:
                return
            self._deliver(self._inbox.popleft())
        # Others have their turn on the loop before the rest.
        self._wake()

    def _start_delivery(self) -> None:
        # An event for each: the last thread may still be in a listener when the sink is opened again.
        arrived = self._arrived = threading.Event()
        self._thread = threading.Thread(
            target=self._deliver_while_open, args=(arrived,), name="ephemeral-delivery", daemon=True
        )
        self._thread.start()

    def _deliver_while_open(self, arrived: threading.Event) -> None:
        while self._is_open and arrived is self._arrived:
            arrived.wait()
            arrived.clear()
            while self._inbox:
                self._deliver(self._inbox.popleft())


def _require_shared_scope(scope: str) -> None:
    validate_name(scope, "scope")
    if scope.count(":") > 1:
        countable = ":".join(scope.split(":")[:2])
        raise ValueError(
            f"a shared count knows scopes of one or two segments, not {scope!r}: deeper ones hold ids, and keys per id"
            f" would never end; count {countable!r}, or this sink's own with count_recent_in_scope"
        )
