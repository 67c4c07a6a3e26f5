"""The signals that wait to be sent: bounded, the oldest dropped and counted, and never a wait for whoever raises."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from . import _batch, _codec

if TYPE_CHECKING:
    from ephemeral.abc import SignalRecord


class Taken(NamedTuple):
    """What the sender gets to send next.

    Attributes:
        signals: As raised; empty if nothing waits.
        skipped: Signals dropped before them, by stream: signals, items.
        markers: Futures of flushes that ask for no more than these.
    """

    signals: list[_codec.Outgoing]
    skipped: tuple[int, int]
    markers: list[Future[None]]


class Outbox:
    """A queue that any thread appends to without a lock and one sender takes from.

    Args:
        limit: Most signals that wait; a raise that runs while the sender takes may exceed it until the next raise.

    Attributes:
        dropped: Signals dropped because the queue was full.
        stale: Signals dropped because they were older than the bus keeps when their turn came.
        taken: Signals handed to the sender.
        is_asked: Whether somebody waits for what is queued to arrive.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # A list: what is added is added at once, whole slices are taken, and neither needs a lock against the other.
        self._queue: list[SignalRecord | Future[None]] = []
        # The futures among what is queued. Only adds and discards, which are atomic: a marker is here before and after.
        self._markers: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._skipped = [0, 0]
        self._orphaned: list[Future[None]] = []
        self.dropped = 0
        self.stale = 0
        self.taken = 0
        self.is_asked = False
        # Bound once: this is the path of every raise.
        self._append = self._queue.append

    def __len__(self) -> int:
        """Return how many signals wait; markers of flushes are none."""
        return max(0, len(self._queue) - len(self._markers))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take, no marker either."""
        return not self._queue

    def append(self, record: SignalRecord) -> None:
        """Queue a signal; never blocks."""
        self._append(record)
        if len(self._queue) > self._limit:
            self._shed()

    def mark(self) -> Future[None]:
        """Return a future for the sender to end once all that is queued now has arrived."""
        marker: Future[None] = Future()
        self._markers.add(marker)
        self._append(marker)
        self.is_asked = True
        return marker

    def oldest(self) -> float | None:
        """Return the stamp of the oldest signal that waits; None if none does."""
        return next((entry[3] for entry in self._queue if not isinstance(entry, Future)), None)

    def take(self, oldest: float) -> Taken:
        """Take as many signals as fit one batch, leaving out those stamped before *oldest*."""
        signals: list[_codec.Outgoing] = []
        size = taken = 0
        with self._lock:
            self.is_asked = False
            markers, self._orphaned = self._orphaned, []
            for entry in self._queue[: _codec.MAX_BATCH_SIGNALS]:
                taken += 1
                if isinstance(entry, Future):
                    markers.append(entry)
                elif entry[3] < oldest:
                    self.stale += 1
                    self._skip(entry)
                else:
                    signal = _codec.outgoing(entry)
                    signals.append(signal)
                    size += _codec.body_bytes(signal)
                    if size >= _codec.FULL_BODY_BYTES:
                        break
            del self._queue[:taken]
            self._markers.difference_update(markers)
            skipped, self._skipped = (self._skipped[0], self._skipped[1]), [0, 0]
        self.taken += len(signals)
        return Taken(signals, skipped, markers)

    def _shed(self) -> None:
        # Not blocking: the sender holds the lock for a moment, or this very thread does, in a signal handler.
        if not self._lock.acquire(blocking=False):
            return
        try:
            excess, shed = len(self) - self._limit, 0
            for entry in self._queue:
                if excess <= 0:
                    break
                shed += 1
                if isinstance(entry, Future):
                    self._orphaned.append(entry)
                else:
                    excess -= 1
                    self.dropped += 1
                    self._skip(entry)
            del self._queue[:shed]
            self._markers.difference_update(self._orphaned)
        finally:
            self._lock.release()

    def _skip(self, record: SignalRecord) -> None:
        self._skipped[_batch.is_item(record[0])] += 1
