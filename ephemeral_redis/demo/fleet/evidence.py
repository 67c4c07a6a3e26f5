"""What a run left behind, and what the workers' journals tell of the health that they shared: pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ephemeral_redis.demo.journal import Line
    from ephemeral_redis.demo.ledger import Attempt
    from ephemeral_redis.demo.timeline import Entry

_TOLD_BY = {"down": "failover.requested", "up": "failover.restored"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that a verdict is reached from.

    Attributes:
        journals: What each worker wrote, in order.
        killed: When each worker that was killed was.
        exit_codes: How each other worker ended; None: it had to be killed.
        sent: Widgets that the load knows of.
        effects: Widgets that the ledger shows as done.
        attempts: Everything that the services wrote down, in order.
        entries: The timeline.
    """

    journals: Mapping[str, Sequence[Line]]
    killed: Mapping[str, float]
    exit_codes: Mapping[str, int | None]
    sent: Collection[str]
    effects: Collection[str]
    attempts: Sequence[Attempt]
    entries: Sequence[Entry]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One change of a processor's health in the fleet.

    Attributes:
        processor: Whose.
        epoch: Which change.
        state: What it became.
        began_at: When the first worker followed it, in seconds of ``time.monotonic()``.
        told_by: Who raised the signal of it, once for each time; a fleet has one such worker.
        seconds: From the first worker's following to each one's.
        unaware: Workers that lived and never followed it, sorted.
    """

    processor: str
    epoch: int
    state: str
    began_at: float
    told_by: tuple[str, ...]
    seconds: Mapping[str, float]
    unaware: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One run of a worker's probe.

    Attributes:
        worker: Whose.
        processor: Of what.
        fence: Of its lease; 0: on its own account, while the bus was away.
        began_at: In seconds of ``time.monotonic()``.
        ended_at: The same, or when its worker was killed; infinite: it never ended.
        is_cut_short: Whether its worker died in it.
    """

    worker: str
    processor: str
    fence: int
    began_at: float
    ended_at: float
    is_cut_short: bool


def turns_of(evidence: Evidence) -> list[Turn]:
    """Return each change of health that the fleet shared, in order.

    What a worker held alone is none; nor is what changed nothing for anybody, such as the fleet's confirmation of what
    each had found alone.
    """
    told = _told(evidence)
    turns: list[Turn] = []
    for (processor, epoch), lines in _followed(evidence).items():
        first = min(lines.values(), key=lambda line: line.at)
        survivors = set(evidence.journals).difference(evidence.killed)
        turns.append(
            Turn(
                processor=processor,
                epoch=epoch,
                state=first.state,
                began_at=first.at,
                told_by=tuple(told.get((processor, epoch, _TOLD_BY.get(first.state, "")), ())),
                seconds={worker: line.at - first.at for worker, line in lines.items()},
                unaware=tuple(sorted(survivors.difference(lines))),
            )
        )
    return sorted(turns, key=lambda turn: turn.began_at)


def _followed(evidence: Evidence) -> dict[tuple[str, int], dict[str, Line]]:
    """Return how each worker followed each (processor, epoch) of the fleet that changed its state for somebody."""
    followed: dict[tuple[str, int], dict[str, Line]] = {}
    edges: set[tuple[str, int]] = set()
    for worker, lines in evidence.journals.items():
        held: dict[str, str] = {}
        for line in lines:
            if line.kind != "health":
                continue
            turn = line.name, line.epoch
            is_edge = held.get(line.name, "up") != line.state
            held[line.name] = line.state
            if not line.is_local:
                followed.setdefault(turn, {}).setdefault(worker, line)
                if is_edge:
                    edges.add(turn)
    return {turn: lines for turn, lines in followed.items() if turn in edges}


def _told(evidence: Evidence) -> dict[tuple[str, int, str], list[str]]:
    """Return who raised each (processor, epoch, signal) for the fleet, once for each time."""
    told: dict[tuple[str, int, str], list[str]] = {}
    for worker, lines in evidence.journals.items():
        for line in lines:
            if line.kind == "signal" and not line.is_local:
                name, _, subject = line.name.partition(":")
                told.setdefault((subject.partition("→")[0], line.epoch, name), []).append(worker)
    return told


def probes_of(evidence: Evidence) -> list[Probe]:
    """Return each run of each worker's probes, in the order in which they began."""
    probes: list[Probe] = []
    for worker, lines in evidence.journals.items():
        ends = {(line.name, line.fence): line.at for line in lines if line.kind == "probe ended"}
        for line in lines:
            if line.kind == "probe began":
                ended_at = ends.get((line.name, line.fence), evidence.killed.get(worker, float("inf")))
                is_cut_short = (line.name, line.fence) not in ends
                probes.append(
                    Probe(
                        worker=worker,
                        processor=line.name,
                        fence=line.fence,
                        began_at=line.at,
                        ended_at=ended_at,
                        is_cut_short=is_cut_short,
                    )
                )
    return sorted(probes, key=lambda probe: probe.began_at)


def collisions_of(probes: Sequence[Probe]) -> list[tuple[Probe, Probe]]:
    """Return each two probes of one processor that ran at the same time, or under one fence or an older one.

    Probes on a worker's own account are left out: while the bus is away nobody can be asked.
    """
    shared = [probe for probe in probes if probe.fence]
    found: list[tuple[Probe, Probe]] = []
    for processor in sorted({probe.processor for probe in shared}):
        mine = [probe for probe in shared if probe.processor == processor]
        found += [(one, two) for one, two in pairwise(mine) if two.began_at < one.ended_at or two.fence <= one.fence]
    return found


def count_between(evidence: Evidence, start: float, end: float) -> int:
    """Return how many widgets the workers did from *start* to *end*."""
    lines = (line for lines in evidence.journals.values() for line in lines)
    return sum(line.kind == "done" and start <= line.at <= end for line in lines)
