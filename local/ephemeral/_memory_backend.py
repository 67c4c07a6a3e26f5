"""One sink's side of a bus within one process: what it keeps while it is cut off, and what it tells its sink."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._errors import BusUnavailableError
from ._ids import next_id
from ._positions import Positions
from .abc import ITEM_SIGNALS, SharedRecord, SignalBackend, Swap

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._memory_bus import MemoryBus
    from .abc import HealthNews, HealthReport, HealthWatcher, SignalReceiver, SignalRecord

Entry: TypeAlias = "Callable[[MemoryBackend], object]"
"""What the bus tells: passes it on to one sink's side."""


@dataclass(frozen=True, slots=True)
class MemoryBusStatistics:
    """Counters of one sink's side of a `MemoryBus`.

    Attributes:
        is_degraded: Whether it is cut off.
        outbox: Signals kept until it is back.
        sent: Signals sent.
        remote: Signals of others that were received.
        repeated: Signals received twice, and passed on once.
        missed: Signals of others that never came.
    """

    is_degraded: bool
    outbox: int
    sent: int
    remote: int
    repeated: int
    missed: int


class _Kept(NamedTuple):
    report: HealthReport
    ended_at: float


class MemoryBackend(SignalBackend):
    """One sink's side of a `MemoryBus`; made by `MemoryBus.backend`."""

    def __init__(self, bus: MemoryBus, *, mirror_items: bool) -> None:
        self._bus = bus
        self._mirror_items = mirror_items
        self._origin = f"{next_id():016x}"
        self._receiver: SignalReceiver | None = None
        self._is_away = False
        self._outbox: deque[SignalRecord] = deque()
        self._flushes: list[Future[None]] = []
        self._left: Future[int] | None = None
        self._reports: deque[_Kept] = deque()
        self._watchers: list[HealthWatcher] = []
        self._known: dict[str, SharedRecord] = {}
        self._positions = Positions()
        self._read = 0
        self._sent = self._remote = self._repeated = self._missed = 0

    @property
    def origin(self) -> str:
        """Who this sink is on the bus."""
        return self._origin

    @property
    def is_degraded(self) -> bool:
        """Whether it is closed or cut off."""
        return self._is_away or self._receiver is None

    def statistics(self) -> MemoryBusStatistics:
        """Return the counters."""
        return MemoryBusStatistics(
            self.is_degraded, len(self._outbox), self._sent, self._remote, self._repeated, self._missed
        )

    def bus_time(self) -> float:
        """Return the bus's clock."""
        return self._bus.now()

    def open(self, receiver: SignalReceiver) -> Future[None]:
        """Begin; there at once, unless it is cut off."""
        if self._receiver is not None:
            raise RuntimeError("this backend is open already: one backend belongs to one sink")
        self._receiver = receiver
        self._read = self._bus.log_end
        if not self._is_away:
            self._greet()
        return _ended(None)

    def close(self, timeout: float) -> Future[int]:
        """End, once the ladders that have ended have told of their last changes."""
        left = self._left = Future[int]()
        end = partial(self._end, left)
        if self.is_degraded or not self._is_awaited or not self._bus.call_later(timeout, end):
            end()
        return left

    def publish(self, record: SignalRecord) -> None:
        """Send one signal, or keep it."""
        self._outbox.append(record)
        if not self.is_degraded:
            self._send()

    def flush(self) -> Future[None]:
        """Return a future that ends once all that was published is on the bus."""
        if not self._outbox:
            return _ended(None)
        self._flushes.append(Future())
        return self._flushes[-1]

    def count(self, scope: str, within: float) -> Future[int]:
        """Count signals of all sinks."""
        return self._away() if self.is_degraded else _ended(self._bus.count(scope, within))

    def watch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* of health."""
        self._watchers.append(watcher)
        if self.is_degraded:
            watcher.lost()
        else:
            watcher.table(dict(self._known))

    def unwatch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* nothing more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if self._left is not None and not self._is_awaited:
            self._end(self._left)

    def report(self, report: HealthReport) -> None:
        """Have the table count how a call ended, or keep it."""
        self._reports.append(_Kept(report, self._bus.now()))
        if not self.is_degraded:
            self._send()

    def swap(self, swap: Swap) -> Future[bool]:
        """Offer a decision to the table."""
        if self.is_degraded:
            return self._away()
        future: Future[bool] = Future()
        self._heal(swap.record.processor)
        is_done = self._bus.swap(self._origin, swap)
        self._bus.after_news(lambda: self._answer(future, is_done=is_done))
        return future

    # For the bus

    def go_away(self) -> None:
        """Be cut off."""
        if not self._is_away:
            self._is_away = True
            for watcher in tuple(self._watchers):
                watcher.lost()

    def come_back(self) -> None:
        """Be back."""
        if self._is_away:
            self._is_away = False
            if self._receiver is not None:
                self._greet()

    def take(self, number: int, entry: Entry) -> None:
        """Receive what the bus tells; what comes while this is cut off is read on return."""
        if not self.is_degraded:
            self._read = max(self._read, number + 1)
            entry(self)

    def take_signal(self, origin: str, position: int, record: SignalRecord) -> None:
        """Receive a signal of another sink."""
        assert self._receiver is not None
        arrival = self._positions.arrive(origin, position, 1)
        self._repeated += arrival.fresh_from
        if arrival.missed:
            self._missed += arrival.missed
            self._receiver.missed(arrival.missed)
        if not arrival.fresh_from and (self._mirror_items or not record[0].startswith(ITEM_SIGNALS)):
            self._remote += 1
            shifted = record[3] - self._bus.now() + self._receiver.now()
            self._receiver.receive([(*record[:3], shifted, *record[4:6], origin)])

    def take_news(self, news: HealthNews) -> None:
        """Receive a change of health."""
        if news.row is not None:
            known = self._known.get(news.processor)
            if known is not None and not news.row.follows(known):
                self._heal(news.processor)
                return
            self._known[news.processor] = news.row
        for watcher in tuple(self._watchers):
            watcher.news(news)

    @property
    def _is_awaited(self) -> bool:
        return any(watcher.is_leaving for watcher in self._watchers)

    def _end(self, left: Future[int]) -> None:
        if left is not self._left:
            return  # ended already, and perhaps opened again since
        self._left = self._receiver = None
        for watcher in tuple(self._watchers):
            watcher.lost()
        left.set_result(len(self._outbox))

    def _greet(self) -> None:
        # Failures first: the table, as it is read next, confirms the trips that were taken alone.
        self._send()
        for number, entry in self._bus.log_from(self._read):
            self.take(number, entry)
        for processor in self._known:
            self._heal(processor)
        for processor, row in self._bus.rows().items():
            if processor not in self._known or row.follows(self._known[processor]):
                self._known[processor] = row
        for watcher in tuple(self._watchers):
            watcher.table(dict(self._known))

    def _heal(self, processor: str) -> None:
        """Put back a row that is newer here: the bus lost its data."""
        known, row = self._known.get(processor), self._bus.rows().get(processor)
        if known is not None and (row is None or known.follows(row)):
            self._bus.swap(self._origin, Swap("healed", row.version if row else 0, known.record, known.version))

    def _send(self) -> None:
        while self._reports:
            report, ended_at = self._reports.popleft()
            self._heal(report.processor)
            self._bus.report(self._origin, report, ended_at)
        receiver = self._receiver
        while self._outbox and receiver is not None:
            record = self._outbox.popleft()
            at = record[3] - receiver.now() + self._bus.now()
            self._bus.add_signal(self, self._sent, (*record[:3], at, *record[4:]))
            self._sent += 1
        flushes, self._flushes = self._flushes, []
        for future in flushes:
            if not future.done():
                future.set_result(None)

    def _answer(self, future: Future[bool], *, is_done: bool) -> None:
        if self.is_degraded:
            future.set_exception(BusUnavailableError("cut off"))
        else:
            future.set_result(is_done)

    def _away(self) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BusUnavailableError("cut off"))
        return future


def _ended(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
