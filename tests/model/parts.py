"""What a modelled worker touches: futures, a loop and a server that do nothing by themselves, and compare by value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from ephemeral._health_table import HealthTable
from ephemeral.abc import BusUnavailableError, HealthNews, HealthReport, SharedRecord, Swap

P = "pri1"


class Ended(NamedTuple):
    """What a future has ended with, as the store looks at it."""

    is_done: bool | None

    def result(self) -> bool:
        """Return the answer."""
        if self.is_done is None:
            raise BusUnavailableError("the connection ended")
        return self.is_done

    def exception(self) -> Exception | None:
        """Return why there is none."""
        return BusUnavailableError("the connection ended") if self.is_done is None else None


class Promise:
    """The answer to a swap, while it is under way. Two are equal if the same was asked for the same purpose."""

    __slots__ = ("_callbacks", "key", "swap")

    def __init__(self, swap: Swap, purpose: str) -> None:
        self.swap = swap
        self.key = (swap, purpose)
        self._callbacks: list[Callable[[Any], object]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Promise) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        """Call *function* in the end."""
        self._callbacks.append(function)

    def for_nobody(self, function: Callable[[Any], object]) -> Promise:
        """Return one that only *function* is told of: whoever asked was cancelled."""
        other = Promise(self.swap, "for nobody")
        other.add_done_callback(function)
        return other

    def done(self) -> bool:
        """Say that it is under way: those that have ended are in nobody's hands any more."""
        return False

    def set_result(self, is_done: bool | None) -> None:
        """End it; None: with no answer."""
        for function in self._callbacks:
            function(Ended(is_done))


class Kept(NamedTuple):
    """A report that is not told yet, or was told and never answered; equal if it says the same."""

    key: Hashable
    report: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def kept(report: HealthReport, ended_at: float, number: int) -> Kept:
    """Return what is kept of *report*."""
    key = (report.epoch, report.has_failed, report.down_at(0.0), ended_at, number)
    return Kept(key, report)


class Hop(NamedTuple):
    """A function that waits for a turn of the loop; equal if it is the same with the same arguments."""

    key: Hashable
    run: Callable[[], object]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hop) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def hop(function: Callable[[], object]) -> Hop:
    """Return *function* as what waits."""
    if isinstance(function, partial):
        arguments = tuple(tuple(a.items()) if isinstance(a, dict) else a for a in function.args)
        return Hop((function.func.__name__, *(a for a in arguments if _is_value(a))), function)
    return Hop((function.__name__,), function)


def _is_value(argument: Any) -> bool:
    return type(argument).__hash__ is not object.__hash__


class Loop:
    """A worker's loop: keeps what is to be called, or calls it at once."""

    def __init__(self, clock: Server, *, is_prompt: bool) -> None:
        self._clock = clock
        self._is_prompt = is_prompt
        self.waiting: list[Hop] = []

    def now(self) -> float:
        """Return the time; the server's, for clocks that differ are told apart elsewhere."""
        return self._clock.now

    def call_soon_threadsafe(self, function: Callable[[], object]) -> None:
        """Call *function* later, or now."""
        if self._is_prompt:
            function()
        else:
            self.waiting.append(hop(function))


class Entry(NamedTuple):
    """One entry of the control stream; ids are of the server's clock, as Redis makes them."""

    id: tuple[float, int]
    news: HealthNews


NOTHING: tuple[float, int] = (-1.0, 0)


class Server:
    """A health table with its control stream: ``HealthTable``, which the scripts are held to by tests of their own.

    Attributes:
        now: Its clock, in whole seconds.
        table: Rows and counts.
        log: The control stream.
        told: Which reports are among the counted failures: told again, they are there already.
        edges: How often the row went from up to anything else.
    """

    def __init__(self) -> None:
        self.now = 1.0
        self.table = HealthTable()
        self.log: tuple[Entry, ...] = ()
        self.told: frozenset[Hashable] = frozenset()

    def save(self) -> Hashable:
        """Return its state."""
        table = self.table
        calls = tuple(table._failures.get(P, ())), tuple(table._successes.get(P, ()))
        return self.now, table.rows.get(P), calls, self.log, self.told

    def load(self, state: Any) -> None:
        """Be in *state*."""
        self.now, row, calls, self.log, self.told = state
        self.table = HealthTable()
        if row is not None:
            self.table.rows[P] = row
        self.table._failures[P], self.table._successes[P] = map(list, calls)

    def empty(self) -> None:
        """Lose all data."""
        self.load((self.now, None, ((), ()), (), frozenset()))

    @property
    def row(self) -> SharedRecord | None:
        """The processor's row."""
        return self.table.rows.get(P)

    @property
    def last_id(self) -> tuple[float, int]:
        """The id of the last control entry."""
        return self.log[-1].id if self.log else NOTHING

    def swap(self, origin: str, swap: Swap) -> bool:
        """Take a decision, or not."""
        news = self.table.swap(origin, swap, self.now)
        self._tell(news)
        return news is not None

    def counts(self, report: HealthReport) -> bool:
        """Whether a report is of the row's epoch, and the processor up."""
        row = self.row
        return report.epoch == (row.record.epoch if row else 0) and (row is None or row.record.is_up)

    def report(self, origin: str, kept: Kept) -> bool:
        """Count how a call ended; return whether that was of the row's epoch."""
        report = kept.report
        if not self.counts(report):
            return False
        member = (origin, kept.key[4])
        failures = self.table._failures.get(P, [])
        if member in self.told:
            # An entry of a sorted set, which is there already.
            self._tell(HealthNews("counted", origin, P, None, len(failures)) if report.has_failed else None)
            return True
        if report.has_failed:
            self.told |= {member}
        self._tell(self.table.report(origin, report, kept.key[3], self.now))
        return True

    def _tell(self, news: HealthNews | None) -> None:
        if not self.table._failures.get(P):
            self.told = frozenset()
        if news is not None:
            now, number = self.last_id
            self.log += (Entry((self.now, number + 1 if now == self.now else 0), news),)

    def after(self, cursor: tuple[float, int]) -> Entry | None:
        """Return the first entry after *cursor*."""
        return next((entry for entry in self.log if entry.id > cursor), None)
