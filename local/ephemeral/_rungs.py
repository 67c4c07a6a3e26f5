"""What a ladder is made of: its rungs, the items that move over them, and the pure choice between rungs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import anyio

from ._bodies import RanOutOfTimeError
from ._health import HealthRecord, HealthRules, Lease
from ._operations import NO_CONTEXT
from ._workers import Worker


@dataclass(eq=False, slots=True, kw_only=True)
class Rung:
    """One processor of a group: a set of slots, and what to run in them.

    ``is_up``, ``epoch`` and ``probe_due_at`` follow what the health store says, so that routing asks nobody.

    Attributes:
        priority: Its place; 1 is tried first.
        name: As signals spell it: ``pri1``, or ``group.pri1``.
        run: Processes one item.
        slots: How many items it may process at once.
        rules: When it counts as unhealthy.
        probe: Asks whether it is well again; None: an item is tried instead.
        is_failure: Whether an error is the processor's; None: each is.
        slow_after: Seconds after which a running call counts against it; None: never.
        active: Slots taken.
        handed: Items that failed on another rung and are to run here.
        is_up: Whether work may go here.
        epoch: That of its health now.
        probe_due_at: Loop time of the next probe; infinite: none as things are.
        asker: What this process wants to probe it with, until the lease is its own or refused.
        ask_again_at: Loop time before which it does not ask again: it was not given the lease.
        lost_probes: Plain functions that were to probe it, ran out of time and have not returned.
        last_health: Its record and failures when the group ended; None before.
    """

    priority: int
    name: str
    run: Callable[[Any], Coroutine[Any, Any, Any]]
    slots: int
    rules: HealthRules
    probe: Callable[[], Coroutine[Any, Any, Any]] | None
    is_failure: Callable[[BaseException], bool] | None
    slow_after: float | None
    active: int = 0
    handed: deque[Item] = field(default_factory=deque["Item"])
    is_up: bool = True
    epoch: int = 0
    probe_due_at: float = 0.0
    asker: Item | Probe | None = None
    ask_again_at: float = 0.0
    lost_probes: int = 0
    last_health: tuple[HealthRecord, int] | None = None

    @property
    def has_slot(self) -> bool:
        """Whether one more item may run here now."""
        return self.active < self.slots

    @property
    def next_probe_at(self) -> float:
        """Loop time at which this process may ask to probe."""
        return max(self.probe_due_at, self.ask_again_at)

    def wants_probe(self, now: float) -> bool:
        """Whether this process should ask to probe it now."""
        # To its probe a rung loses at most one thread more than its slots may take: the one beside them.
        return not self.is_up and self.asker is None and self.lost_probes <= self.slots and now >= self.next_probe_at

    def has_given_up(self, error: BaseException) -> bool:
        """Whether *error* says that this rung's own time ran out, and not that of something its processor called."""
        limited = error.limited if isinstance(error, RanOutOfTimeError) else None
        return limited is not None and limited in (self.run, self.probe)

    def follow(self, record: HealthRecord) -> None:
        """Take over what the health store says."""
        self.is_up = record.is_up
        self.epoch = record.epoch
        self.probe_due_at = record.probe_due_at


class Item:
    """One accepted item, from its enqueue or call until its end.

    Attributes:
        id: Its operation id.
        payload: The user's item; None once it has ended, so that nothing here keeps it alive.
        name: As signals spell it; empty where items raise none.
        context: What its processor runs in; a call runs in its caller's instead.
        is_call: Whether a caller waits and runs it in its own task.
        turn: Set while a call waits; told when a slot is its own, or when it is refused.
        refusal: What a refused call is told.
        rung: Where it runs, or ran last.
        epoch: That of the rung's health as the run began.
        slow_at: Loop time from which this run counts against the rung; infinite if it does not, or has been counted.
        failed_runs: Those that count towards ``max_attempts``.
        is_canary: Whether this run is a probe; if that fails, the item runs again.
        lease: The canary's, until its verdict is in.
        must_run: Whether it has been a canary that failed: it may not be refused any more.
        is_slow: Whether this run has been counted as a failure already, for taking too long.
        worker: Who runs it; None while it waits, and for a call.
        is_cut_off: Whether its run was cancelled because the time to drain was over.
    """

    __slots__ = (
        "context",
        "epoch",
        "failed_runs",
        "id",
        "is_call",
        "is_canary",
        "is_cut_off",
        "is_slow",
        "lease",
        "must_run",
        "name",
        "payload",
        "refusal",
        "rung",
        "slow_at",
        "turn",
        "worker",
    )

    rung: Rung

    def __init__(self, operation_id: int, payload: Any, name: str, context: Context, is_call: bool = False) -> None:
        self.id = operation_id
        self.payload = payload
        self.name = name
        self.context = context
        self.is_call = is_call
        self.turn: anyio.Event | None = None
        self.refusal: Exception | None = None
        self.epoch = 0
        self.slow_at = math.inf
        self.failed_runs = 0
        self.is_canary = False
        self.lease: Lease | None = None
        self.must_run = False
        self.is_slow = False
        self.worker: Worker | None = None
        self.is_cut_off = False

    def rest(self) -> None:
        """Be what it was before its run: another one is to follow."""
        self.is_canary = self.is_slow = False
        self.slow_at = math.inf
        self.lease = self.worker = None

    def clear(self) -> None:
        """Let go of the user's item and of its context."""
        self.payload = None
        self.context = NO_CONTEXT


class Probe:
    """One run of a rung's own ``probe``, which needs no item and no slot."""

    __slots__ = ("context", "lease", "rung")

    def __init__(self, rung: Rung) -> None:
        self.rung = rung
        self.context = Context()
        self.lease: Lease | None = None


def first_up(rungs: Iterable[Rung], *, below: int = 0) -> Rung | None:
    """Return the first of *rungs*, in order of priority, that is healthy and lies below priority *below*."""
    return next((rung for rung in rungs if rung.is_up and rung.priority > below), None)


def stand_in(rungs: Iterable[Rung], rung: Rung) -> str:
    """Return the name of the rung next to *rung*, healthy or not; the next number where there is none."""
    following = next((other.name for other in rungs if other.priority > rung.priority), None)
    return following or f"{rung.name.removesuffix(str(rung.priority))}{rung.priority + 1}"
