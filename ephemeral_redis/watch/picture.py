"""What a fleet looks like at one instant, as every view of it shows: plain values, no behaviour but JSON.

Times are UTC epoch seconds of the bus's clock, or of this process's where it watches itself. Names are as they were
raised: whoever shows them escapes them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPicture:
    """One processor of a ladder.

    Attributes:
        processor: Its name in signals, ``pri1`` or ``group.pri1``.
        priority: Its place in the ladder.
        state: As the fleet holds it.
        since: When it came into that state; None: it has never been in another.
        epoch: Grows with each change of state; 0: nothing is known of it yet, so it is up.
        by: Origin of the worker that caused the last change; None: there was none.
        failures: How many took it down, or are counted against it now.
        failed_probes: Failed probes in a row.
        prober: Origin of the worker that probes it now.
        probe_until: When that worker's right to probe ends.
        next_probe: When the next probe may start; None: not as things are.
        last_probe: When the last one started.
        down_alone: Origins of workers that hold it down for themselves only.
    """

    processor: str
    priority: int
    state: Literal["up", "down", "probing", "isolated"]
    since: float | None = None
    epoch: int = 0
    by: str | None = None
    failures: int = 0
    failed_probes: int = 0
    prober: str | None = None
    probe_until: float | None = None
    next_probe: float | None = None
    last_probe: float | None = None
    down_alone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPicture:
    """One ladder, with the work of all workers on it that are known.

    Attributes:
        group: Its name.
        rungs: By priority, the most wanted first.
        route: The processor that new work goes to; None: none is healthy, so work waits.
        workers: How many workers have it.
        pending: Items and calls that wait.
        active: Items and calls that run.
        completed: Processed well.
        failed: Given up after a failure, and calls that ended with an error.
        cancelled: Cancelled.
        abandoned: Given up after ``max_attempts`` runs.
        undelivered: Left over when ``drain_timeout`` was over.
    """

    group: str
    rungs: tuple[RungPicture, ...]
    route: str | None
    workers: int
    pending: int
    active: int
    completed: int
    failed: int
    cancelled: int
    abandoned: int
    undelivered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPicture:
    """One worker, as it told of itself the last time.

    Attributes:
        origin: Who it is on the bus, 16 hexadecimal digits.
        name: What it calls itself; its host's name and its process's number unless it was told.
        version: Of this library.
        python: Of its interpreter.
        started: When its sink was opened.
        told: When it told this last.
        is_degraded: Whether it could not reach the bus then.
        degraded_seconds: How long it could not, in all.
        raised: Signals that it raised.
        sent: Of them, those the bus has.
        dropped: Of them, those that will never be sent: too many waited, too old, or refused.
        outbox: Signals that wait to be sent.
        remote: Signals of others that it received.
        missed: Signals of others that never came.
        lag: Age of the last of them when it was received, seconds.
        undecodable: Entries of the bus that it could not read.
        reconnects: How often it reached the bus again.
        pending: Items that wait in its ladders.
        active: Items that run in its ladders.
        round_trip: 99th percentile of its last round trips to the bus, seconds; None: there was none.
        listener_errors: How often a listener of its sink raised.
        undelivered: Signals of others whose listeners were not called, because their loop was too far behind.
        reports_dropped: Ends of calls that it never told the health table, because too many waited.
    """

    origin: str
    name: str
    version: str
    python: str
    started: float
    told: float
    is_degraded: bool
    degraded_seconds: float
    raised: int
    sent: int
    dropped: int
    outbox: int
    remote: int
    missed: int
    lag: float
    undecodable: int
    reconnects: int
    pending: int
    active: int
    round_trip: float | None = None
    listener_errors: int = 0
    undelivered: int = 0
    reports_dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRate:
    """How often signals of one scope are raised.

    Attributes:
        scope: Of one or two segments.
        count: Signals within the last *within* seconds.
        within: Over how many seconds.
    """

    scope: str
    count: int
    within: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the health of one processor.

    Attributes:
        at: When.
        kind: ``"down"``, ``"restored"``, ``"isolated"``, ``"reset"``, ``"probing"``, ``"probe failed"``,
            ``"probe good"``, ``"lease given back"`` or ``"healed"``.
        processor: Whose.
        epoch: From then on.
        by: Origin of the worker that caused it.
        is_edge: Whether the route may have changed by it; False: a step on the way, such as a probe.
    """

    at: float
    kind: str
    processor: str
    epoch: int
    by: str
    is_edge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPicture:
    """The server between the workers.

    Attributes:
        kind: ``"redis"`` or ``"valkey"``.
        version: Its own.
        latency: Seconds from a question to its answer, as seen from here.
        used_memory: Bytes; None where asking is not allowed.
        max_memory: Bytes; 0: unlimited; None where asking is not allowed.
        policy: Its eviction policy; None where asking is not allowed.
    """

    kind: str
    version: str
    latency: float
    used_memory: int | None = None
    max_memory: int | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPicture:
    """All of it.

    Attributes:
        namespace: Whose; empty where one process watches itself without a bus.
        at: When it was taken.
        read_at: When the bus was last read well; older than ``at`` by as much as this picture is out of date.
        problem: Why the bus cannot be read now; None: it can.
        groups: By name.
        workers: By name; those that have told of themselves lately.
        scopes: The busiest first.
        scopes_known: How many scopes there are, shown or not.
        changes: The latest first.
        server: The server; None: there is no bus, or nothing was read yet.
        unreadable: Records, rows and entries that this version of the library could not read, so far.
    """

    namespace: str
    at: float
    read_at: float
    problem: str | None
    groups: tuple[GroupPicture, ...]
    workers: tuple[WorkerPicture, ...]
    scopes: tuple[ScopeRate, ...]
    scopes_known: int
    changes: tuple[Change, ...]
    server: ServerPicture | None
    unreadable: int = 0

    @property
    def age(self) -> float:
        """How old what it shows is, seconds."""
        return max(0.0, self.at - self.read_at)

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON knows."""
        return {**asdict(self), "age": self.age}
