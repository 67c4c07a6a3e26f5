"""What a run proved, judged from what the services wrote down and never from what the client believes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import timeline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .ledger import Attempt
    from .timeline import Entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of every widget, and how long the ladder took to turn.

    Attributes:
        sent: Widgets that the ladder accepted.
        done: Widgets that the ledger shows as done.
        lost: Accepted and not done, sorted.
        doubled: Took effect more than once, sorted.
        unknown: Done although nobody sent them, sorted.
        repeats_refused: Attempts at widgets that had been done before; they had no effect.
        done_by: Widgets done, by service.
        seconds_to_backup: From the death of the primary to the first widget that the backup did after it, or None.
        seconds_to_listen: From the restart of the primary until it listened, its own start, or None.
        seconds_to_restored: From the restart of the primary until the ladder took it back, or None.
        is_primary_back: False if the primary was killed, and the ladder had given it up, and did not take it back.
    """

    sent: int
    done: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    unknown: tuple[str, ...]
    repeats_refused: int
    done_by: Mapping[str, int]
    seconds_to_backup: float | None
    seconds_to_listen: float | None
    seconds_to_restored: float | None
    is_primary_back: bool

    @property
    def objections(self) -> tuple[str, ...]:
        """What did not hold, a sentence each; empty when everything did."""
        found = [
            (self.lost, "{} of the widgets sent were lost: {}"),
            (self.doubled, "{} of the widgets took effect more than once: {}"),
            (self.unknown, "{} widgets were done that nobody sent: {}"),
        ]
        sentences = [text.format(len(widgets), some(widgets)) for widgets, text in found if widgets]
        if not self.is_primary_back:
            sentences.append("the primary was started again, but the ladder did not take it back")
        return tuple(sentences)

    @property
    def holds(self) -> bool:
        """True when every widget that was sent is done, its effect once, and the primary is back in use."""
        return not self.objections


def judge(
    sent: Collection[str], effects: Collection[str], attempts: Sequence[Attempt], entries: Sequence[Entry]
) -> Verdict:
    """Conclude from the ledger and the timeline of a run.

    Args:
        sent: Widgets that the ladder accepted.
        effects: Widgets that the ledger shows as done.
        attempts: Everything that the services wrote down, in order.
        entries: The timeline, in order.
    """
    first_tries = [attempt for attempt in attempts if not attempt.is_repeat]
    times_done = Counter(attempt.widget for attempt in first_tries)
    killed_at = _first(entries, timeline.KILLED)
    restarted_at = _first(entries, timeline.RESTARTED)
    backup_at = None
    if killed_at is not None:
        backup_at = min((a.at for a in first_tries if a.service == "backup" and a.at >= killed_at), default=None)
    return Verdict(
        sent=len(sent),
        done=len(effects),
        lost=tuple(sorted(set(sent).difference(effects))),
        doubled=tuple(sorted(widget for widget, times in times_done.items() if times > 1)),
        unknown=tuple(sorted(set(effects).difference(sent))),
        repeats_refused=len(attempts) - len(first_tries),
        done_by=dict(Counter(attempt.service for attempt in first_tries)),
        seconds_to_backup=_between(killed_at, backup_at),
        seconds_to_listen=_between(restarted_at, _first(entries, timeline.LISTENING, since=restarted_at)),
        seconds_to_restored=_between(restarted_at, _first(entries, timeline.RESTORED, since=restarted_at)),
        is_primary_back=_is_primary_back(entries),
    )


def _is_primary_back(entries: Iterable[Entry]) -> bool:
    is_back = True
    for entry in entries:
        if entry.name.startswith("failover.requested:pri1→"):
            is_back = False
        elif entry.name == timeline.RESTORED:
            is_back = True
    return is_back


def _first(entries: Iterable[Entry], name: str, *, since: float | None = None) -> float | None:
    return next((entry.at for entry in entries if entry.name == name and (since is None or entry.at >= since)), None)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def some(names: Sequence[str], limit: int = 5) -> str:
    """Return the first of *names*, for a sentence."""
    return ", ".join(names[:limit]) + (" …" if len(names) > limit else "")
