"""The bounded window of signals: exact by age and by capacity, with a count per question that was asked.

Arrival order and age usually agree, and where they do the oldest entries simply leave at the front. An event with a
stamp below an earlier arrival's, a *straggler* (a stamp of its own, or two threads between reading the clock and
appending), waits in a heap and is crossed out where it stands when its age is reached.
"""

from __future__ import annotations

import heapq
from typing import Final, cast

from ._counts import CountIndex, CountKind
from ._signals import RaisedEvent, SignalEvent
from ._signals import Record as Record  # noqa: PLC0414  others know it from here

MAX_INDEXES: Final = 256


def event_of(record: Record) -> SignalEvent:
    """Return *record* as the event it holds; its fields were checked when it was raised."""
    return RaisedEvent(record) if type(record) is tuple else cast("SignalEvent", record)


class Window:
    """The newest signals, at most ``max_capacity`` and none older than ``max_age``, in order of arrival.

    Not thread-safe, reads no clock, calls no user code: its owner has a lock and passes the time.

    Attributes:
        max_capacity: How many may be in it.
        max_age: Seconds until one is forgotten.
        removed: How many `remove` has taken out.
    """

    def __init__(self, max_capacity: int, max_age: float) -> None:
        self.max_capacity = max_capacity
        self.max_age = max_age
        self.removed = 0
        # Entry i has the sequence number _base + i; None is one crossed out. Before _head all are gone.
        self._log: list[Record | None] = []
        self._base = 0
        self._head = 0
        self._live = 0
        self._built = 0  # the sequence up to which entries are SignalEvents
        self._newest = float("-inf")  # the highest stamp that arrived
        self._stragglers: list[tuple[float, int]] = []  # heap of (stamp, sequence), some of them gone already
        self._earliest = float("inf")  # no stamp is lower, so before it is cut nothing expires
        self._cut = float("-inf")  # the lowest stamp that is not too old
        self._indexes: dict[tuple[CountKind, str], CountIndex] = {}
        self._edition: object | None = None  # another one after each change that was counted; None: none was yet

    def __len__(self) -> int:
        return self._live

    def add(self, records: list[Record]) -> None:
        """Append *records*; the bounds hold again after `trim`."""
        self._edition = None
        first = self._base + len(self._log)
        self._log += records
        self._live += len(records)
        stamps = [record[3] for record in records]
        if not stamps:
            return
        # In order, nearly always: this costs 5 ns an entry where a loop costs 30.
        if stamps[0] >= self._newest and sorted(stamps) == stamps:
            self._newest = stamps[-1]
            self._earliest = min(self._earliest, stamps[0])
            return
        self._earliest = min(self._earliest, *stamps)
        for sequence, stamp in enumerate(stamps, first):
            if stamp >= self._newest:
                self._newest = stamp
            else:
                heapq.heappush(self._stragglers, (stamp, sequence))

    def trim(self, now: float) -> None:
        """Forget what is older than ``max_age`` at *now*, wherever it stands, then the oldest over capacity."""
        self._cut = now - self.max_age
        if self._earliest < self._cut:
            self._expire(self._cut)
        elif self._live <= self.max_capacity:
            return
        self._edition = None
        excess = self._live - self.max_capacity
        if excess > 0:
            self._drop_oldest(excess)
        self._compact()

    def events(self) -> list[SignalEvent]:
        """Return what is in the window, oldest arrival first."""
        start = max(self._head, self._built - self._base)
        self._log[start:] = [record and event_of(record) for record in self._log[start:]]
        self._built = self._base + len(self._log)
        found = self._log[self._head :]
        if len(found) != self._live:
            found = [record for record in found if record is not None]
        return found  # type: ignore[return-value]  # every entry is an event by now

    def remove(self, doomed: set[int]) -> int:
        """Take out the events whose ``id()`` is in *doomed* and return how many were still there."""
        survivors = [record for record in self._log[self._head :] if record is not None and id(record) not in doomed]
        count = self._live - len(survivors)
        if count:
            self.removed += count
            self._refill(survivors)
        return count

    def count(self, kind: CountKind, text: str, since: float) -> int:
        """Return how many events match *kind* of *text* and have a stamp of at least *since*.

        Costs O(log n) plus what arrived since the same question was last asked. 256 questions are remembered; another
        one replaces that whose index lags farthest behind.

        Raises:
            TypeError: *text* is no ``str``.
            ValueError: *text* cannot match any name.
        """
        try:
            index = self._indexes.get((kind, text))
        except TypeError:  # no hash, so no str: said below
            index = None
        if index is None:
            index = CountIndex(kind, text)
            if len(self._indexes) >= MAX_INDEXES:
                del self._indexes[min(self._indexes, key=lambda question: self._indexes[question].end)]
            self._indexes[kind, text] = index
        if self._edition is None:
            self._edition = object()
        index.follow(self._log, self._base, self._head, self._edition)
        return index.count_since(max(since, self._cut))

    def standing_count(self, kind: CountKind, text: str, since: float, now: float) -> int | None:
        """Return what `count` would at *now*, if nothing has come or gone since it was last asked this; else None.

        The one method for which nobody needs to have the lock.
        """
        cut = now - self.max_age
        try:
            index = self._indexes.get((kind, text))
        except TypeError:
            return None
        # Looked at last: an answer of this edition was right at this instant, whatever happens from now on.
        if index is None or self._earliest < cut or index.standing[0] is not self._edition:
            return None
        return index.count_since(max(since, cut))

    def _expire(self, cut: float) -> None:
        while self._stragglers and self._stragglers[0][0] < cut:
            place = heapq.heappop(self._stragglers)[1] - self._base
            if place >= self._head and self._log[place] is not None:
                self._log[place] = None
                self._live -= 1
        # Behind an entry that is live all are: its followers are newer, or stragglers and crossed out above.
        log = self._log
        while self._head < len(log):
            record = log[self._head]
            if record is not None:
                if record[3] >= cut:
                    break
                self._live -= 1
            self._head += 1
        record = log[self._head] if self._head < len(log) else None
        self._earliest = float("inf") if record is None else record[3]
        if self._stragglers:
            self._earliest = min(self._earliest, self._stragglers[0][0])

    def _drop_oldest(self, excess: int) -> None:
        self._live -= excess
        if self._live + excess == len(self._log) - self._head:  # nothing crossed out
            self._head += excess
            return
        while excess:
            excess -= self._log[self._head] is not None
            self._head += 1

    def _compact(self) -> None:
        if self._head * 8 > len(self._log):
            del self._log[: self._head]
            self._base += self._head
            self._head = 0
        # 64: too few to matter. The factor spreads the cost of a refill over the entries that made it due.
        bound = 2 * self._live + 64
        if len(self._log) - self._head > bound or len(self._stragglers) > bound:
            self._refill([record for record in self._log[self._head :] if record is not None])

    def _refill(self, survivors: list[Record]) -> None:
        # New sequence numbers, above all old ones: to an index everything has left and come again.
        self._base += len(self._log)
        self._log = []
        self._head = self._live = 0
        self._stragglers = []
        self._newest = float("-inf")
        self._earliest = float("inf")
        self._built = self._base
        self.add(survivors)
