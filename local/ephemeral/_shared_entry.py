"""A processor's row as one worker sees it: the fleet's, its own while it is alone, and what its ladder is shown."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from ._health import Change, HealthRecord, HealthRules, Lease, finish, give_back, isolate, reset
from ._health_store import Evidence
from .abc import SharedRecord


class Verdict(NamedTuple):
    """What a probe found."""

    rules: HealthRules
    lease: Lease
    is_good: bool

    def __call__(self, record: HealthRecord, now: float) -> Change | None:
        return finish(record, self.rules, self.lease, is_good=self.is_good, now=now)


class Return(NamedTuple):
    """A lease that nobody needs any more."""

    lease: Lease

    def __call__(self, record: HealthRecord, now: float) -> Change | None:  # noqa: ARG002  as decisions are called
        return give_back(record, self.lease)


class ByHand(NamedTuple):
    """What a person wants, at worker *by*."""

    wish: Literal["isolate", "reset"]
    by: str

    def __call__(self, record: HealthRecord, now: float) -> Change | None:
        if self.wish == "reset":
            return reset(record, by=self.by, now=now)
        return isolate(record, by=self.by, now=now)


Decision: TypeAlias = Verdict | Return | ByHand
"""Takes a record and the bus's time, and says what to make of it, if anything: again whenever it is refused."""


class SharedEntry:
    """What one worker knows of one processor that its fleet shares.

    Attributes:
        rules: Its rules.
        evidence: What this worker has counted in the current epoch.
        row: The table's row, in the bus's time.
        own: A row of this worker alone, which holds as long as it is there.
        shown: What the ladder sees, in the loop's time.
        promised: A decision by hand that is shown already, and what was shown before it.
        undecided: A decision to offer once the bus is back.
        has_fleet_moved: Whether its epoch changed while a row of this worker's own held what was decided by hand.
        wish: The last decision by hand, until it has come true: any earlier one is overruled.
        is_streak_open: Whether failures are counted somewhere, so that a success must be told.
        counted: How many, as last heard.
        counted_at: When that was heard.
        reports_awaited: Failures that this worker told the table of, which has yet to say what became of them.
        offers: Decisions of this worker that the table has yet to answer.
    """

    __slots__ = (
        "counted",
        "counted_at",
        "evidence",
        "has_fleet_moved",
        "is_streak_open",
        "offers",
        "own",
        "promised",
        "reports_awaited",
        "row",
        "rules",
        "shown",
        "undecided",
        "wish",
    )

    def __init__(self, rules: HealthRules, unknown: HealthRecord) -> None:
        self.rules = rules
        self.evidence = Evidence(rules)
        self.row = SharedRecord(0, unknown)
        self.own: HealthRecord | None = None
        self.shown = unknown
        self.promised: tuple[HealthRecord, HealthRecord] | None = None
        self.undecided: Decision | None = None
        self.has_fleet_moved = False
        self.wish: ByHand | None = None
        self.is_streak_open = False
        self.counted = 0
        self.counted_at = 0.0
        self.reports_awaited = 0
        self.offers = 0

    @property
    def processor(self) -> str:
        """Its name in signals."""
        return self.row.record.processor

    @property
    def is_awaited(self) -> bool:
        """Whether an answer of the table is still to come, of which this worker may have to tell."""
        return self.reports_awaited > 0 or self.offers > 0

    @property
    def current(self) -> HealthRecord:
        """What holds here, in the bus's time."""
        return self.row.record if self.own is None else self.own

    @property
    def expected(self) -> HealthRecord:
        """What will hold once the table has taken the last decision by hand, in the bus's time."""
        return self.current if self.promised is None else self.promised[0]

    @property
    def settled(self) -> HealthRecord:
        """What the ladder was shown last that was no mere promise, in the loop's time."""
        return self.shown if self.promised is None else self.promised[1]

    @property
    def may_differ(self) -> bool:
        """Whether this worker may keep a row of its own: where the fleet is up, and waits for a quorum to say else."""
        return self.rules.quorum > 1 and self.row.record.is_up

    def is_overruled(self, decision: Decision) -> bool:
        """Whether somebody here has decided otherwise by hand since."""
        # Told apart as objects: the same may be wished for twice, with something else between.
        return isinstance(decision, ByHand) and decision is not self.wish

    def came_true(self, decision: Decision) -> None:
        """Learn that *decision* holds, or can no longer."""
        if decision is self.wish:
            self.wish = None

    def keep(self, decision: Decision) -> None:
        """Keep *decision* for when the fleet can be asked; what a probe found does not take the place of a wish."""
        if not isinstance(self.undecided, ByHand) or isinstance(decision, ByHand):
            self.undecided = decision

    def forget_counts(self) -> None:
        """Forget what was counted."""
        self.evidence.clear()
        self.is_streak_open = False
        self.counted = 0
