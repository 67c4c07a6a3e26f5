"""Keeps the health of a group's processors: what the ladder reads, and where it reports.

``HealthStore`` is the seam: here within one process, elsewhere shared by a fleet. Decisions are ``_health``'s; a store
counts, keeps the records, and says what changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ._health import (
    Change,
    Counts,
    HealthRecord,
    HealthRules,
    Lease,
    finish,
    fresh,
    give_back,
    grant,
    isolate,
    judge,
    reset,
    trip,
)

OnChange: TypeAlias = Callable[[Change], None]


class HealthStore(ABC):
    """The health of some processors, read without I/O and reported to without waiting.

    All methods but ``record`` and ``failures`` belong on the thread of the loop that the processors run on, in plain
    loop callbacks too. Only ``acquire`` may wait. A name that is not registered is a ``KeyError`` in ``record`` and
    ``failures``; elsewhere it changes nothing, for a call may end after its processor was closed.

    Every *now* is a time in seconds on one monotonic clock, which never runs back; records use the same one.

    Attributes:
        on_change: Called with each change once the table holds it, from within whatever caused it. It may call any
            method of the store, whose own change it is then told of before it returns; what it raises goes to that
            cause, and the table stays right.
    """

    on_change: OnChange

    @abstractmethod
    def register(self, processor: str, rules: HealthRules, now: float) -> None:
        """Begin to keep *processor*, which is up until something else is known.

        Raises:
            ValueError: It is registered already.
        """

    @abstractmethod
    async def learned(self) -> None:
        """Wait until all that is known elsewhere of what was registered is known here, for a second at most.

        A cancellation point only if it waits; a store of one process never does.
        """

    @abstractmethod
    def forget(self, processor: str) -> None:
        """Keep nothing of *processor* here any longer."""

    @abstractmethod
    def record(self, processor: str) -> HealthRecord:
        """Return its health as far as it is known here; no I/O. Any thread may ask."""

    @abstractmethod
    def failures(self, processor: str, now: float) -> int:
        """Return the failures that count against it; of one that is not up, those that took it down.

        Any thread may ask.
        """

    @abstractmethod
    def failed(self, processor: str, epoch: int, now: float) -> None:
        """Count a call that failed, or that has lasted too long; the epoch is the record's when the call started."""

    @abstractmethod
    def succeeded(self, processor: str, epoch: int, now: float) -> None:
        """Count a call that ended well and did not last too long; the epoch is the record's when the call started."""

    @abstractmethod
    async def acquire(self, processor: str, now: float) -> Lease | None:
        """Take the lease to probe, if a probe is due and nobody else has it; a shared store may need a round trip.

        Ask only with an item or a probe in hand. A caller cancelled meanwhile has no lease; one that the store gave
        out all the same ends by time.
        """

    @abstractmethod
    def finish(self, lease: Lease, now: float, *, is_good: bool) -> None:
        """Report what the probe found; without effect if the lease was lost."""

    @abstractmethod
    def give_back(self, lease: Lease) -> None:
        """Return a lease without a verdict, so that another probe may start at once; without effect if it was lost."""

    @abstractmethod
    def isolate(self, processor: str, now: float) -> None:
        """Take *processor* out by hand; it is never probed, and stays out until ``reset``."""

    @abstractmethod
    def reset(self, processor: str, now: float) -> None:
        """Bring *processor* back by hand; one that is up only loses the failures counted against it."""


class LocalHealthStore(HealthStore):
    """The health of processors that this process alone uses.

    Bounded: a processor holds fewer failures than its threshold, or under ``"rate"`` a stamp for each call within its
    window. ``acquire`` never waits and is no cancellation point.

    Args:
        origin: Who this process is in records and leases.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.on_change: OnChange = ignore_change
        self._entries: dict[str, _Entry] = {}

    def register(self, processor: str, rules: HealthRules, now: float) -> None:
        if processor in self._entries:
            raise ValueError(f"{processor!r} is registered already; forget it first")
        self._entries[processor] = _Entry(rules, fresh(processor, by=self.origin, now=now))

    async def learned(self) -> None:
        pass

    def forget(self, processor: str) -> None:
        self._entries.pop(processor, None)

    def record(self, processor: str) -> HealthRecord:
        return self._entries[processor].record

    def failures(self, processor: str, now: float) -> int:
        entry = self._entries[processor]
        return entry.evidence.failures(now) if entry.record.is_up else entry.record.failures

    def failed(self, processor: str, epoch: int, now: float) -> None:
        entry = self._entries.get(processor)
        if entry is None or not entry.record.is_up or entry.record.epoch != epoch:
            return
        entry.evidence.failed(now)
        counts = entry.evidence.counts(now)
        reach = judge(entry.rules, own=counts, fleet=counts, origins=1)
        if reach is not None:
            failures = counts.failures
            self._apply(trip(entry.record, entry.rules, reach, failures=failures, by=self.origin, now=now))

    def succeeded(self, processor: str, epoch: int, now: float) -> None:
        entry = self._entries.get(processor)
        # Nearly every call ends here: nothing failed lately, and no policy asks for the successes.
        if entry is None or not entry.evidence.heeds_success:
            return
        if entry.record.epoch == epoch:
            entry.evidence.succeeded(now)

    async def acquire(self, processor: str, now: float) -> Lease | None:
        entry = self._entries.get(processor)
        change = entry and grant(entry.record, entry.rules, owner=self.origin, now=now)
        if not change:
            return None
        self._apply(change)
        return change.after.lease

    def finish(self, lease: Lease, now: float, *, is_good: bool) -> None:
        entry = self._entries.get(lease.processor)
        if entry is not None:
            self._apply(finish(entry.record, entry.rules, lease, is_good=is_good, now=now))

    def give_back(self, lease: Lease) -> None:
        entry = self._entries.get(lease.processor)
        if entry is not None:
            self._apply(give_back(entry.record, lease))

    def isolate(self, processor: str, now: float) -> None:
        entry = self._entries.get(processor)
        if entry is not None:
            self._apply(isolate(entry.record, by=self.origin, now=now))

    def reset(self, processor: str, now: float) -> None:
        entry = self._entries.get(processor)
        if entry is not None:
            self._apply(reset(entry.record, by=self.origin, now=now))

    def _apply(self, change: Change | None) -> None:
        if change is None:
            return
        entry = self._entries[change.after.processor]
        entry.record = change.after
        if change.after.epoch != change.before.epoch:
            entry.evidence.clear()
        # Last: it may call back into the store, and what it raises must find the table right.
        self.on_change(change)


class Evidence:
    """What one worker has counted of one processor in its current epoch."""

    __slots__ = ("_failures", "_rules", "_successes", "heeds_success")

    def __init__(self, rules: HealthRules) -> None:
        self._rules = rules
        self._failures: deque[float] = deque()
        self._successes: deque[float] = deque()
        self.heeds_success = rules.policy == "rate"

    def failed(self, now: float) -> None:
        self._failures.append(now)
        self.heeds_success = True

    def succeeded(self, now: float) -> None:
        if self._rules.policy == "rate":
            self._successes.append(now)
            self._prune(self._successes, now)
        elif self._rules.policy == "consecutive":
            self.clear()

    def counts(self, now: float) -> Counts:
        self._prune(self._failures, now)
        self._prune(self._successes, now)
        return Counts(len(self._failures), len(self._successes))

    def failures(self, now: float) -> int:
        # Of a copy, which is made in one step: any thread may ask, and this one may be counting.
        oldest = now - self._rules.failure_window
        return sum(stamp >= oldest for stamp in self._failures.copy())

    def clear(self) -> None:
        self._failures.clear()
        self._successes.clear()
        self.heeds_success = self._rules.policy == "rate"

    def _prune(self, stamps: deque[float], now: float) -> None:
        oldest = now - self._rules.failure_window
        while stamps and stamps[0] < oldest:
            stamps.popleft()


class _Entry:
    """One processor's row of the table."""

    __slots__ = ("evidence", "record", "rules")

    def __init__(self, rules: HealthRules, record: HealthRecord) -> None:
        self.rules = rules
        self.record = record
        self.evidence = Evidence(rules)


def ignore_change(change: Change) -> None:
    """Stand in until somebody listens."""
