"""What joins the sinks of several workers: the seam between a sink, its ladders, and whatever carries their news.

`SignalBackend` is that seam. ``ephemeral_redis`` has one for a fleet, `ephemeral.testing.MemoryBus` gives one to each
sink of a test. A backend carries three things: signals, counts of them, and the health table with the reports that
change it. It decides nothing about health: a decision is taken where its news are, by the rules of
`ephemeral.abc.HealthRules`, and offered to the table as a swap that fails if the table has moved on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from ._checks import seconds, whole_number
from ._errors import BusUnavailableError
from ._health import Cause, Change, HealthRecord, HealthRules, Lease, isolate, reset
from ._loops import Loop, current_loop
from ._patterns import Pattern
from ._positions import Arrival, Positions
from ._window import Record as SignalRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from ._ladder_status import LadderStatus
    from ._sink import SinkStatistics

__all__ = [
    "ITEM_SIGNALS",
    "Arrival",
    "BusUnavailableError",
    "Cause",
    "Change",
    "HealthNews",
    "HealthRecord",
    "HealthReport",
    "HealthRules",
    "HealthWatcher",
    "Lease",
    "Loop",
    "NewsKind",
    "Pattern",
    "Positions",
    "SharedRecord",
    "SignalBackend",
    "SignalReceiver",
    "SignalRecord",
    "Swap",
    "current_loop",
    "isolate",
    "reset",
    "seconds",
    "whole_number",
]

NewsKind: TypeAlias = Cause | Literal["counted", "uncounted", "healed"]

ITEM_SIGNALS = "processing."
"""Signals whose name begins so are raised for each item of a ladder: counted, but kept apart from all others."""


class SharedRecord(NamedTuple):
    """A row of the health table.

    Attributes:
        version: Grows with each change of the row; 0: there is no row yet.
        record: What it says, its times being UTC epoch seconds of the bus.
        is_readable: False for a row that this version of the library does not understand; *record* is then no more
            than a name, and whoever asks has to judge the processor alone until the row can be read again.
    """

    version: int
    record: HealthRecord
    is_readable: bool = True

    def follows(self, other: SharedRecord) -> bool:
        """Whether this is what became of the row *other*, and not what it was before.

        The epoch counts first: a table that lost its data, or went back to an older copy, begins with new versions.
        """
        if self.is_readable and other.is_readable and self.record.epoch != other.record.epoch:
            return self.record.epoch > other.record.epoch
        return self.version > other.version

    @classmethod
    def unreadable(cls, processor: str, version: int) -> SharedRecord:
        """Return what is known of a row that cannot be read."""
        return cls(version, HealthRecord(processor, epoch=0, since=0.0, by=""), is_readable=False)


class HealthReport(NamedTuple):
    """How one call ended, as of now.

    Attributes:
        processor: Who was called.
        epoch: The table's epoch of it when the call started; 0 for a processor without a row.
        has_failed: Whether it failed.
        rules: The caller's rules, by which the bus judges.
        down_at: Returns the record to put there if the failure is one too many, at the bus's time it is given; its
            ``failures`` are filled in from the count.
    """

    processor: str
    epoch: int
    has_failed: bool
    rules: HealthRules
    down_at: Callable[[float], HealthRecord]


class Swap(NamedTuple):
    """A decision on offer to the table.

    Attributes:
        cause: Why.
        expected: Version of the row that it was taken on; 0: there was none.
        record: The row from then on.
        version: What it was when the table lost it, if it is put back: whoever knows what became of it then still
            does. 0: the table gives it a new one.
    """

    cause: NewsKind
    expected: int
    record: HealthRecord
    version: int = 0


class HealthNews(NamedTuple):
    """One change of the health table, or of what has been counted.

    Attributes:
        kind: Why it changed; ``"counted"``: only the count of failures did; ``"uncounted"``: nothing did, for what
            *origin* reported came too late to count; ``"healed"``: a worker put back what the table had lost.
        origin: Which worker's doing it was.
        processor: Whose row it is.
        row: The row as changed; None if it is as it was.
        failures: How many are counted now; not said by ``"uncounted"``.
        reported: Failures that *origin* has told of, and hears of with this.
    """

    kind: NewsKind
    origin: str
    processor: str
    row: SharedRecord | None
    failures: int
    reported: int = 0


class SignalReceiver(Protocol):
    """A sink, as its backend sees it. Called on any thread; never blocks, never raises."""

    def now(self) -> float:
        """Return the sink's clock, UTC epoch seconds, by which it stamps and ages signals."""
        ...

    def receive(self, records: Sequence[SignalRecord], /) -> None:
        """Take signals that other sinks raised, in order per origin, each once; stamps are of this sink's clock."""
        ...

    def missed(self, count: int, /) -> None:
        """Learn that so many signals of others will never come."""
        ...

    def renew_origin(self, origin: str, /) -> None:
        """Raise under another origin from now on: this process is a fork."""
        ...

    def statistics(self) -> SinkStatistics:
        """Return its counters, for telling others of it."""
        ...

    def get_ladders(self) -> tuple[LadderStatus, ...]:
        """Return what its ladders show of themselves, for the same."""
        ...


class HealthWatcher(Protocol):
    """A ladder's store, as the backend sees it. Called on any thread; never blocks, never raises."""

    @property
    def is_leaving(self) -> bool:
        """Whether it will `unwatch` by itself once it has told of its last changes: a bus that closes waits for it."""
        return False

    def table(self, rows: Mapping[str, SharedRecord]) -> None:
        """Learn the whole table: at first, and whenever the bus is back."""
        ...

    def news(self, news: HealthNews) -> None:
        """Learn one change, in the order in which the table took them."""
        ...

    def lost(self) -> None:
        """Learn that the bus cannot be reached: whatever is decided now is decided alone."""
        ...


class SignalBackend(ABC):
    """What one sink shares with the sinks of other workers. A backend belongs to one sink.

    Every method may be called from any thread, returns at once, and raises nothing because of a bus that is slow or
    away. Futures end with `BusUnavailableError` where the bus would have been needed.
    """

    @property
    @abstractmethod
    def origin(self) -> str:
        """Who this sink is on the bus: 16 hexadecimal digits, unique, and new after a fork."""

    @property
    @abstractmethod
    def is_degraded(self) -> bool:
        """Whether the bus cannot be reached now, so that only this process's own news are known."""

    @abstractmethod
    def statistics(self) -> Any:
        """Return what it has done so far: a frozen dataclass of the backend's own."""

    @abstractmethod
    def open(self, receiver: SignalReceiver) -> Future[None]:
        """Begin. The future ends once the bus is reached, or found to be away; with an error if that is not allowed.

        Raises:
            RuntimeError: It is open already.
        """

    @abstractmethod
    def close(self, timeout: float) -> Future[int]:
        """Send what is left, for at most *timeout* seconds, and end. The future tells how many signals were left."""

    @abstractmethod
    def publish(self, record: SignalRecord) -> None:
        """Take one signal for the others; its payload is portable, and stays as it is."""

    @abstractmethod
    def flush(self) -> Future[None]:
        """Return a future that ends once the bus has all that was published before; it may be cancelled."""

    @abstractmethod
    def count(self, scope: str, within: float) -> Future[int]:
        """Count the signals of all sinks in *scope*, of one or two segments, that are at most *within* seconds old."""

    @abstractmethod
    def bus_time(self) -> float:
        """Return the bus's own clock, as far as it is known here: UTC epoch seconds."""

    @abstractmethod
    def watch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* all news of health, beginning with the table if the bus is there, else that it is lost."""

    @abstractmethod
    def unwatch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* nothing more."""

    @abstractmethod
    def report(self, report: HealthReport) -> None:
        """Count how a call ended. Kept while the bus is away, bounded, and told with its true age when it is back."""

    @abstractmethod
    def swap(self, swap: Swap) -> Future[bool]:
        """Offer a decision to the table; the future tells whether it was taken.

        It ends after the watchers were told of the row as it then is, so that whoever was refused can decide anew.
        """
