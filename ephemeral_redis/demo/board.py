"""How things stand at one instant: what the ladder tells and a view draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One row of the ladder.

    Attributes:
        name: For people, such as ``pri1 primary``.
        state: ``up``, ``down``, ``probing`` or ``isolated``.
        since: Seconds that it has been so.
        epoch: Grows with each change of health.
        failures: That count against it now.
        done: Widgets that it has done.
        rate: Widgets that it has done in the last second.
    """

    name: str
    state: str
    since: float
    epoch: int
    failures: int
    done: int
    rate: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Board:
    """All that the live view shows at one instant.

    Attributes:
        elapsed: Seconds of the run.
        items: Widgets that the whole run sends.
        sent: Of these, accepted so far.
        done: Of these, done.
        waiting: Of these, in line.
        running: Of these, with a service.
        rungs: The ladder, best first.
        signals: Names of the last signals, oldest first.
    """

    elapsed: float
    items: int
    sent: int
    done: int
    waiting: int
    running: int
    rungs: Sequence[Rung]
    signals: Sequence[str]
