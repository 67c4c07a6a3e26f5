"""Decides whether a processor is healthy, and who may probe one that is not.

Values in, values out: nothing here reads a clock, awaits, locks or stores. A store (one process, or a fleet through a
shared one) keeps the records and the counts, and takes every decision here, so that all of them decide alike.

Every time is in seconds of one monotonic clock, the store's own. Two rules carry most of the weight:

- *Epochs.* Whenever the state changes, or is set anew by hand, the record gets a higher epoch, and all that was counted
  is dropped. A call carries the epoch that it saw when it started; what it reports under an older one counts for
  nothing. So a late success restores no health, a late failure costs none, and no failure outlives a recovery.
- *Leases.* "Probing" is not stored: it is a processor that is down with a lease that still runs. A prober that dies
  leaves nothing to clean up; its lease ends by time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

from ._checks import Seconds, optional_seconds, seconds, whole_number

Policy: TypeAlias = Literal["consecutive", "windowed", "rate"]
HealthState: TypeAlias = Literal["up", "down", "probing", "isolated"]
Reach: TypeAlias = Literal["fleet", "worker"]
Cause: TypeAlias = Literal[
    "failures", "isolate", "reset", "probe_started", "probe_passed", "probe_failed", "probe_returned"
]

# A verdict must travel before its lease ends: one loop that is late and one round trip of at most a second to a store.
LEASE_MARGIN = 2.0
# Nothing bounds the call that probes: long enough for nearly all of them, short enough to wait out a prober that died.
UNBOUNDED_LEASE = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthOptions:
    """When a processor counts as unhealthy, and what brings it back.

    Immutable, so safe to share between processors and threads. Durations may be given as ``timedelta``; they are kept
    as seconds.

    Attributes:
        policy: What makes it unhealthy, counted within the processor's ``failure_window`` and from its last recovery
            on. ``"consecutive"``: ``failure_threshold`` failures with no success that ended between them.
            ``"windowed"``: ``failure_threshold`` failures, whatever succeeded between. ``"rate"``: a share of
            ``failure_rate`` among at least ``minimum_calls`` calls; keeps one stamp per call in the window.
        failure_rate: Share of failed calls for ``"rate"``, above 0 and at most 1.
        minimum_calls: Calls that must have ended in the window before ``"rate"`` may decide, at least 1.
        slow_after: Seconds, above 0, after which a call counts as a failure while it still runs; None: never.
        quorum: How many workers must have seen failures before the whole fleet routes away, at least 1. Below it, a
            worker whose own failures suffice routes away alone. In one process every trip is then a local one.
        recovery_probes: Good probes in a row that restore it, at least 1.
        probe_backoff: Factor, at least 1, by which the interval grows after each failed probe in a row.
        max_probe_interval: Seconds, above 0, up to which the interval grows; a longer ``probe_interval`` is kept.

    Raises:
        ValueError: A value is of another type or out of its range; the message names field, value and range.
    """

    policy: Policy = "consecutive"
    failure_rate: float = 0.5
    minimum_calls: int = 20
    slow_after: Seconds | None = None
    quorum: int = 1
    recovery_probes: int = 1
    probe_backoff: float = 1.0
    max_probe_interval: Seconds = 60.0

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise ValueError(f"policy must be one of {', '.join(get_args(Policy))}, not {self.policy!r}")
        if not (_is_number(self.failure_rate) and 0 < self.failure_rate <= 1):
            raise ValueError(f"failure_rate must be a number above 0 and at most 1, not {self.failure_rate!r}")
        if not (_is_number(self.probe_backoff) and 1 <= self.probe_backoff < math.inf):
            raise ValueError(f"probe_backoff must be a finite number of at least 1, not {self.probe_backoff!r}")
        for name in ("minimum_calls", "quorum", "recovery_probes"):
            whole_number(name, getattr(self, name))
        object.__setattr__(self, "slow_after", optional_seconds("slow_after", self.slow_after))
        object.__setattr__(self, "max_probe_interval", seconds("max_probe_interval", self.max_probe_interval))


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthRules:
    """All that a decision about one processor needs; made by ``of``, which checks every value.

    Attributes:
        failure_threshold: Failures that make it unhealthy (``"consecutive"``, ``"windowed"``).
        failure_window: Seconds; what is older does not count, what is exactly as old does.
        probe_interval: Seconds from the edge, and from each probe, to the next one.
        lease_seconds: How long a prober may take before another one may try.

    The other fields are those of ``HealthOptions``, durations in seconds.
    """

    policy: Policy
    failure_threshold: int
    failure_window: float
    failure_rate: float
    minimum_calls: int
    quorum: int
    recovery_probes: int
    probe_interval: float
    probe_backoff: float
    max_probe_interval: float
    lease_seconds: float

    @classmethod
    def of(
        cls,
        health: HealthOptions,
        *,
        failure_threshold: int = 3,
        failure_window: Seconds = 10.0,
        probe_interval: Seconds = 5.0,
        timeout: Seconds | None = None,
    ) -> HealthRules:
        """Return the rules of a processor from its options.

        The lease lasts until the verdict on a probe must be known: a call is a failure once it outlasts ``timeout`` or
        ``slow_after``, whichever comes first. Where neither is set no probe is bound to end, and the lease lasts as
        long as the slowest probing asked for, so that a probe that hangs is not joined by others any faster.

        Args:
            health: Options of the processor.
            failure_threshold: At least 1.
            failure_window: Seconds, above 0.
            probe_interval: Seconds, above 0.
            timeout: Seconds, above 0, after which a call is cancelled; None: never.

        Raises:
            ValueError: A value is of another type or out of its range; the message names it.
        """
        max_probe_interval = seconds("max_probe_interval", health.max_probe_interval)
        limits = {"timeout": timeout, "slow_after": health.slow_after}
        verdict_by = [seconds(name, value) for name, value in limits.items() if value is not None]
        return cls(
            policy=health.policy,
            failure_threshold=whole_number("failure_threshold", failure_threshold),
            failure_window=seconds("failure_window", failure_window),
            failure_rate=health.failure_rate,
            minimum_calls=health.minimum_calls,
            quorum=health.quorum,
            recovery_probes=health.recovery_probes,
            probe_interval=seconds("probe_interval", probe_interval),
            probe_backoff=health.probe_backoff,
            max_probe_interval=max_probe_interval,
            lease_seconds=min(verdict_by) + LEASE_MARGIN if verdict_by else max(UNBOUNDED_LEASE, max_probe_interval),
        )


class Lease(NamedTuple):
    """The right to probe one processor, held by one prober at a time.

    Attributes:
        processor: Which one.
        owner: Origin of the worker that probes.
        fence: Grows with each lease; a verdict under another fence than the record's lease is ignored.
        until: When the lease ends if no verdict comes.
    """

    processor: str
    owner: str
    fence: int
    until: float


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """The health of one processor, as of its last change.

    Attributes:
        processor: Its name in signals, ``pri1`` or ``group.pri1``.
        epoch: Grows whenever ``state`` changes or is reset.
        since: When ``state`` last changed.
        by: Origin of the worker that caused that.
        state: ``"up"``, ``"down"`` or ``"isolated"``; see ``state_at`` for what people are shown.
        is_local: Down for this worker alone; False: for all that share the store.
        failures: How many took it down; 0 where a hand did, and while it is up.
        failed_probes: Failed ones in a row.
        good_probes: Good ones in a row.
        probe_at: When the next probe may start; infinite unless down.
        lease: The last lease that was neither answered nor given back; it may have ended by time.
        fence: That of the newest lease ever given out.
        last_probe_at: When the last probe started; None: there was none.
    """

    processor: str
    epoch: int
    since: float
    by: str
    state: Literal["up", "down", "isolated"] = "up"
    is_local: bool = False
    failures: int = 0
    failed_probes: int = 0
    good_probes: int = 0
    probe_at: float = math.inf
    lease: Lease | None = None
    fence: int = 0
    last_probe_at: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether work may go there."""
        return self.state == "up"

    @property
    def probe_due_at(self) -> float:
        """When the next probe may start, a lease that is out considered; infinite: not as things are."""
        return self.probe_at if self.lease is None else max(self.probe_at, self.lease.until)

    def shifted(self, by: float) -> HealthRecord:
        """Return it with every time *by* seconds later: in another clock."""
        return replace(
            self,
            since=self.since + by,
            probe_at=self.probe_at + by,
            lease=self.lease and self.lease._replace(until=self.lease.until + by),
            last_probe_at=None if self.last_probe_at is None else self.last_probe_at + by,
        )

    def state_at(self, now: float) -> HealthState:
        """Return the state as people know it: ``"probing"`` while a lease runs."""
        return "probing" if self.lease is not None and now < self.lease.until else self.state


class Change(NamedTuple):
    """What a decision did to a record.

    Attributes:
        cause: Why.
        before: The record until then.
        after: The record from then on.
        is_own: Whether this worker took the decision; where a fleet shares the health, it alone tells of it.
        is_alone: Whether it was put on a row that this worker alone has, for its fleet cannot be asked or says else.
    """

    cause: Cause
    before: HealthRecord
    after: HealthRecord
    is_own: bool = True
    is_alone: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it is one of this worker alone, as far as is known: one taken by itself, or the end of such a one."""
        return self.is_alone or self.before.is_local or self.after.is_local

    @property
    def went_down(self) -> bool:
        """Whether this is the edge from healthy to unhealthy."""
        return self.before.is_up and not self.after.is_up

    @property
    def came_up(self) -> bool:
        """Whether this is the edge from unhealthy to healthy."""
        return self.after.is_up and not self.before.is_up


class Counts(NamedTuple):
    """Calls that ended within the window, in the current epoch.

    Attributes:
        failures: For ``"consecutive"`` only those since the last success.
        successes: For ``"rate"``; other policies read none.
    """

    failures: int
    successes: int = 0


def judge(rules: HealthRules, *, own: Counts, fleet: Counts, origins: int) -> Reach | None:
    """Return for whom a processor that is up has now failed too often: the fleet, this worker alone, or nobody.

    Asked after a failure only: a success never takes a processor down.

    Args:
        rules: Rules of the processor.
        own: What this worker counted, a streak of its own broken by its own successes only.
        fleet: What all workers counted; in one process the same.
        origins: How many workers the failures in *fleet* come from.
    """
    if origins >= rules.quorum and _is_too_much(rules, fleet):
        return "fleet"
    # With a quorum of one the fleet's count is the only judge: a worker's share of it must not overrule it.
    if rules.quorum > 1 and _is_too_much(rules, own):
        return "worker"
    return None


def next_epoch(last: int, now: float) -> int:
    """Return a number above *last* that keeps growing, at most one a millisecond, after a store lost *last*."""
    return max(last + 1, int(now * 1000))


def fresh(processor: str, *, by: str, now: float) -> HealthRecord:
    """Return the record of a processor that nothing is known of: it is up."""
    return HealthRecord(processor, epoch=next_epoch(0, now), since=now, by=by)


def trip(record: HealthRecord, rules: HealthRules, reach: Reach, *, failures: int, by: str, now: float) -> Change:
    """Take down a processor that is up, as ``judge`` found."""
    down = _enter(record, "down", by=by, now=now)
    first_probe_at = now + rules.probe_interval
    after = replace(down, is_local=reach == "worker", failures=failures, probe_at=first_probe_at)
    return Change("failures", record, after)


def isolate(record: HealthRecord, *, by: str, now: float) -> Change | None:
    """Take a processor out by hand, until it is reset; None: it is out already."""
    if record.state == "isolated":
        return None
    return Change("isolate", record, _enter(record, "isolated", by=by, now=now))


def reset(record: HealthRecord, *, by: str, now: float) -> Change:
    """Bring a processor back by hand; of one that is up, only what was counted against it is forgotten.

    That too takes a new epoch: a failure that happened before, and is told later, must not count.
    """
    if record.is_up:
        return Change("reset", record, replace(record, epoch=next_epoch(record.epoch, now)))
    return Change("reset", record, _enter(record, "up", by=by, now=now))


def grant(record: HealthRecord, rules: HealthRules, *, owner: str, now: float) -> Change | None:
    """Give *owner* the lease to probe, in ``after.lease``; None: no probe is due, or another one is running."""
    # <, not <=: a lease that ends exactly now is over, and a probe due now may start.
    if now < record.probe_due_at:
        return None
    # Like an epoch, so that a store that lost its data does not give out the fence of a lease that is still held.
    fence = next_epoch(record.fence, now)
    lease = Lease(record.processor, owner, fence, now + rules.lease_seconds)
    return Change("probe_started", record, replace(record, lease=lease, fence=fence, last_probe_at=now))


def finish(record: HealthRecord, rules: HealthRules, lease: Lease, *, is_good: bool, now: float) -> Change | None:
    """Take a prober's verdict; None: it comes too late, for the state has changed or another prober has the lease.

    A lease that ended by time and was taken by nobody is answered all the same: the verdict is the newest there is.
    """
    if not _is_held(record, lease):
        return None
    if not is_good:
        failed = record.failed_probes + 1
        probe_at = now + probe_delay(rules, failed)
        after = replace(record, lease=None, failed_probes=failed, good_probes=0, probe_at=probe_at)
        return Change("probe_failed", record, after)
    good = record.good_probes + 1
    if good >= rules.recovery_probes:
        return Change("probe_passed", record, _enter(record, "up", by=lease.owner, now=now))
    probe_at = now + rules.probe_interval
    after = replace(record, lease=None, failed_probes=0, good_probes=good, probe_at=probe_at)
    return Change("probe_passed", record, after)


def give_back(record: HealthRecord, lease: Lease) -> Change | None:
    """Take a lease back without a verdict, so that the next probe is due at once; None: it was no longer held."""
    return Change("probe_returned", record, replace(record, lease=None)) if _is_held(record, lease) else None


def probe_delay(rules: HealthRules, failed_probes: int) -> float:
    """Return the seconds from a probe to the next one, after so many failed ones in a row."""
    try:
        grown = rules.probe_interval * rules.probe_backoff**failed_probes
    except OverflowError:
        grown = math.inf
    # The maximum bounds growth only: an interval that was asked for is never cut short by it.
    return max(rules.probe_interval, min(grown, rules.max_probe_interval))


def _enter(record: HealthRecord, state: Literal["up", "down", "isolated"], *, by: str, now: float) -> HealthRecord:
    """Return a record newly in *state*: only the fence and the last probe outlive the old one."""
    return HealthRecord(
        record.processor,
        epoch=next_epoch(record.epoch, now),
        since=now,
        by=by,
        state=state,
        fence=record.fence,
        last_probe_at=record.last_probe_at,
    )


def _is_held(record: HealthRecord, lease: Lease) -> bool:
    # The owner too: a worker that the store is away from gives itself a lease, and may come upon the same fence.
    return record.lease is not None and (record.lease.owner, record.lease.fence) == (lease.owner, lease.fence)


def _is_too_much(rules: HealthRules, counts: Counts) -> bool:
    if rules.policy != "rate":
        return counts.failures >= rules.failure_threshold
    calls = counts.failures + counts.successes
    # Divided, not multiplied: 7 of 100 is exactly the 0.07 that was asked for, while 0.07 * 100 is above 7.
    return calls >= rules.minimum_calls and counts.failures / calls >= rules.failure_rate


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
