"""How a fleet stands at one instant, from what its workers have written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .crew import Crew, Member


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRow:
    """One worker.

    Attributes:
        name: What it is called.
        state: ``up`` or ``killed``.
        bus: ``shared``, or ``alone`` while it cannot reach the bus.
        primary: What it holds the primary for: ``up``, ``down``, ``probing`` while its own probe runs.
        accepted: Widgets that it has accepted.
        done: Of these, done.
        rate: Done in the last second.
    """

    name: str
    state: str
    bus: str
    primary: str
    accepted: int
    done: int
    rate: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetBoard:
    """All that the live view shows at one instant.

    Attributes:
        elapsed: Seconds of the run.
        sent: Widgets handed to workers so far.
        done: Of these, done.
        workers: All of them.
    """

    elapsed: float
    sent: int
    done: int
    workers: Sequence[WorkerRow]


def board_of(crew: Crew, *, elapsed: float, sent: int, now: float) -> FleetBoard:
    """Return how things stand.

    Args:
        crew: The workers, their journals read.
        elapsed: Seconds of the run.
        sent: Widgets handed to workers so far.
        now: Seconds of ``time.monotonic()``.
    """
    return FleetBoard(
        elapsed=elapsed,
        sent=sent,
        done=sum(member.done for member in crew.members),
        workers=tuple(_row(member, now) for member in crew.members),
    )


def _row(member: Member, now: float) -> WorkerRow:
    return WorkerRow(
        name=member.name,
        state="up" if member.killed_at is None else "killed",
        bus="shared" if member.bus == "reached" else "alone",
        primary="probing" if member.probe is not None else member.holds("pri1"),
        accepted=member.accepted,
        done=member.done,
        rate=member.rate(now),
    )
