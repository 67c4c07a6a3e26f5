"""What a fleet's run proved, judged from the services' ledger and the workers' own journals: a pure function."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ephemeral_redis.demo import timeline
from ephemeral_redis.demo.verdict import some

from .evidence import collisions_of, count_between, probes_of, turns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ephemeral_redis.demo.timeline import Entry

    from .evidence import Evidence, Probe, Turn

BUS_KILLED = "bus.killed"
BUS_RESTARTED = "bus.restarted"
BUS_SPARED = "bus.spared"


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetVerdict:
    """What became of every widget, and how the fleet held together.

    Attributes:
        accepted: Widgets that a worker accepted.
        done: Widgets that the ledger shows as done.
        lost: Accepted by a worker that lived, and not done, sorted.
        died: Accepted by a worker that was killed, by nobody else, and not done, sorted: they died with it.
        doubled: Took effect more than once, sorted.
        unknown: Done although nobody sent them, sorted.
        repeats_refused: Attempts at widgets that had been done before; they had no effect.
        done_by: Widgets done, by service.
        turns: Each change of health that the fleet shared, in order.
        probes: Runs of probes under a lease.
        collisions: Each two of them that should not both have been, as (worker, worker).
        prober_killed: Who was killed while holding the lease; None: nobody was.
        seconds_to_recover: From that one's death until the primary was back in use, or None.
        seconds_to_first: From each death of the primary until the first worker had left it.
        seconds_to_last: The same until the last one had.
        spread: From the first worker's turn to each other's, all turns together, sorted.
        is_bus_spared: True if the bus was not ours to kill.
        bus_seconds: How long the bus was away, or None.
        done_meanwhile: Widgets done in that time.
        seconds_to_rejoin: From the bus's return until the last worker shared again; None: not all did.
        unclean: Workers that were not killed and did not end in order, with their exit code, sorted.
    """

    accepted: int
    done: int
    lost: tuple[str, ...]
    died: tuple[str, ...]
    doubled: tuple[str, ...]
    unknown: tuple[str, ...]
    repeats_refused: int
    done_by: Mapping[str, int]
    turns: tuple[Turn, ...]
    probes: int
    collisions: tuple[tuple[str, str], ...]
    prober_killed: str | None
    seconds_to_recover: float | None
    seconds_to_first: tuple[float | None, ...]
    seconds_to_last: tuple[float | None, ...]
    spread: tuple[float, ...]
    is_bus_spared: bool
    bus_seconds: float | None
    done_meanwhile: int
    seconds_to_rejoin: float | None
    unclean: tuple[tuple[str, int | None], ...]

    @property
    def objections(self) -> tuple[str, ...]:
        """What did not hold, a sentence each; empty when everything did."""
        return (*self._of_widgets(), *self._of_health(), *self._of_bus())

    @property
    def holds(self) -> bool:
        """True when nothing is to be objected."""
        return not self.objections

    def _of_widgets(self) -> list[str]:
        found = [
            (self.lost, "{} widgets of workers that lived were lost: {}"),
            (self.doubled, "{} of the widgets took effect more than once: {}"),
            (self.unknown, "{} widgets were done that nobody sent: {}"),
        ]
        sentences = [text.format(len(widgets), some(widgets)) for widgets, text in found if widgets]
        return sentences + [f"{name} did not end in order (exit code {code})" for name, code in self.unclean]

    def _of_health(self) -> list[str]:
        sentences: list[str] = []
        for turn in self.turns:
            what = f"{turn.processor} {turn.state} (epoch {turn.epoch})"
            if len(turn.told_by) != 1:
                sentences.append(f"{what} was told {len(turn.told_by)} times, not once")
            if turn.unaware:
                sentences.append(f"{what} never reached {some(turn.unaware)}")
        sentences += [f"{one} and {two} probed at the same time" for one, two in self.collisions]
        if None in self.seconds_to_first:
            sentences.append("the primary was killed, but the fleet did not leave it")
        if self.prober_killed is None:
            sentences.append("no worker was killed while it held the lease to probe")
        elif self.seconds_to_recover is None:
            sentences.append(f"the primary was not taken back after {self.prober_killed} died as its prober")
        last = next((turn for turn in reversed(self.turns) if turn.processor == "pri1"), None)
        if last is not None and last.state != "up":
            sentences.append(f"in the end the primary was {last.state}")
        return sentences

    def _of_bus(self) -> list[str]:
        if self.is_bus_spared:
            return []
        if self.bus_seconds is None:
            return ["the bus was not killed and started again"]
        sentences = [] if self.done_meanwhile else ["no work was done while the bus was away"]
        if self.seconds_to_rejoin is None:
            sentences.append("not every worker shared again when the bus was back")
        return sentences


def judge_fleet(evidence: Evidence) -> FleetVerdict:
    """Conclude from what a run left behind."""
    accepted = {
        worker: {line.name for line in lines if line.kind == "accepted"} for worker, lines in evidence.journals.items()
    }
    safe = set[str]().union(*(widgets for worker, widgets in accepted.items() if worker not in evidence.killed))
    all_accepted = set[str]().union(*accepted.values())
    first_tries = [attempt for attempt in evidence.attempts if not attempt.is_repeat]
    times_done = Counter(attempt.widget for attempt in first_tries)
    turns, probes = turns_of(evidence), probes_of(evidence)
    prober = next((probe for probe in probes if probe.fence and probe.is_cut_short), None)
    departures = [_departure(turns, at) for at in _all(evidence.entries, timeline.KILLED)]
    away = _away(evidence.entries)
    return FleetVerdict(
        accepted=len(all_accepted),
        done=len(evidence.effects),
        lost=tuple(sorted(safe.difference(evidence.effects))),
        died=tuple(sorted(all_accepted.difference(safe, evidence.effects))),
        doubled=tuple(sorted(widget for widget, times in times_done.items() if times > 1)),
        unknown=tuple(sorted(set(evidence.effects).difference(evidence.sent))),
        repeats_refused=len(evidence.attempts) - len(first_tries),
        done_by=dict(Counter(attempt.service for attempt in first_tries)),
        turns=tuple(turns),
        probes=sum(probe.fence > 0 for probe in probes),
        collisions=tuple((one.worker, two.worker) for one, two in collisions_of(probes)),
        prober_killed=None if prober is None else prober.worker,
        seconds_to_recover=None if prober is None else _recovery(turns, prober),
        seconds_to_first=tuple(first for first, _ in departures),
        seconds_to_last=tuple(last for _, last in departures),
        spread=tuple(sorted(seconds for turn in turns for seconds in _followers(turn))),
        is_bus_spared=any(entry.name == BUS_SPARED for entry in evidence.entries),
        bus_seconds=None if away is None else away[1] - away[0],
        done_meanwhile=0 if away is None else count_between(evidence, *away),
        seconds_to_rejoin=None if away is None else _rejoining(evidence, away[1]),
        unclean=tuple(sorted((name, code) for name, code in evidence.exit_codes.items() if code != 0)),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below or at which *share* of the sorted *values* lie; None of none (nearest rank)."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def _departure(turns: Sequence[Turn], killed_at: float) -> tuple[float | None, float | None]:
    """Return the seconds from a death of the primary until the first and the last worker had left it."""
    for turn in turns:
        if turn.processor == "pri1" and turn.state == "down" and turn.began_at >= killed_at:
            first = turn.began_at - killed_at
            return first, first + max(turn.seconds.values())
    return None, None


def _recovery(turns: Sequence[Turn], prober: Probe) -> float | None:
    for turn in turns:
        if turn.processor == prober.processor and turn.state == "up" and turn.began_at >= prober.ended_at:
            return turn.began_at - prober.ended_at
    return None


def _followers(turn: Turn) -> list[float]:
    """Return the seconds of all workers but the one that was first."""
    return sorted(turn.seconds.values())[1:]


def _away(entries: Sequence[Entry]) -> tuple[float, float] | None:
    killed, restarted = _all(entries, BUS_KILLED), _all(entries, BUS_RESTARTED)
    return (killed[0], restarted[0]) if killed and restarted else None


def _rejoining(evidence: Evidence, since: float) -> float | None:
    seconds: list[float] = []
    for worker, lines in evidence.journals.items():
        if worker in evidence.killed:
            continue
        reached = (line.at for line in lines if line.kind == "bus" and line.state == "reached" and line.at >= since)
        at = next(reached, None)
        if at is None:
            return None
        seconds.append(at - since)
    return max(seconds, default=None)


def _all(entries: Sequence[Entry], name: str) -> list[float]:
    return [entry.at for entry in entries if entry.name == name]
