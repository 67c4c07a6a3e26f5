"""What is wrong with a fleet, in one sentence for each trouble, the worst first: what somebody reads at 3 a.m.

Names, times of day and spans are kept apart from the words, so that whoever shows them can escape names, knows the
reader's time zone, and can let spans grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .picture import FleetPicture, GroupPicture, RungPicture

SILENT_SECONDS = 6.0
"""After how long a worker that tells nothing is missed: it tells of itself each other second."""

NAMED = 3
"""How many workers a sentence names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Name:
    """Something that somebody else has named: a processor, a worker.

    Attributes:
        text: As it was given, so to be escaped.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day.

    Attributes:
        at: UTC epoch seconds.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Span:
    """The time from an instant to now: "4 min".

    Attributes:
        at: UTC epoch seconds.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Due:
    """The time from now to an instant: "in 4 s"; once it is there, "is due".

    Attributes:
        at: UTC epoch seconds.
    """

    at: float


Part = str | Name | Clock | Span | Due


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing to know.

    Attributes:
        level: ``"down"``: work does not go where it should; ``"warning"``: it does, and something is amiss; ``"good"``.
        parts: What it says, in order.
    """

    level: Literal["down", "warning", "good"]
    parts: tuple[Part, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON knows: each part is an object of one field that says what it is."""
        return {"level": self.level, "parts": [_part_as_json(part) for part in self.parts]}


def headline(picture: FleetPicture) -> tuple[Sentence, ...]:
    """Return what is to be known of *picture*: at least one sentence, the worst first."""
    names = {worker.origin: worker.name for worker in picture.workers}
    told: list[Sentence] = []
    if picture.problem is not None:
        told.append(_unreadable(picture))
    groups = [_of_group(group, names) for group in picture.groups]
    told += sorted((sentence for group in groups for sentence in group), key=lambda sentence: sentence.level != "down")
    told += _of_workers(picture)
    return tuple(told) if told else (_all_is_well(picture),)


def _unreadable(picture: FleetPicture) -> Sentence:
    problem = Name(picture.problem or "")
    if picture.read_at <= 0:
        return Sentence("down", ("The bus cannot be read: ", problem, ". Nothing was seen of it so far."))
    since = (" since ", Clock(picture.read_at), " (", Span(picture.read_at), "): ")
    rest = ". Below is what was seen last; workers go on by what each sees."
    return Sentence("down", ("The bus cannot be read", *since, problem, rest))


def _of_group(group: GroupPicture, names: Mapping[str, str]) -> list[Sentence]:
    """Say what keeps work from the rung it should go to, then what is amiss with the others."""
    if not group.rungs:
        return []
    places = [rung.processor for rung in group.rungs]
    at = places.index(group.route) if group.route in places else len(places)
    in_the_way = [rung for rung in group.rungs[:at] if rung.state != "up"]
    told: list[Sentence] = []
    if in_the_way:
        # A rung that somebody took out is missed by nobody, as long as another one takes the work.
        is_meant = group.route is not None and all(rung.state == "isolated" for rung in in_the_way)
        told.append(
            Sentence(
                "warning" if is_meant else "down",
                (*_out(in_the_way, names), ": ", *_work(group), *_probe(in_the_way, names), "."),
            )
        )
    spare = [rung for rung in group.rungs[at:] if rung.state != "up"]
    if spare:
        unused: tuple[Part, ...] = (": not needed now, ", Name(group.route or ""), " takes the work")
        told.append(Sentence("warning", (*_out(spare, names), *unused, *_probe(spare, names), ".")))
    for rung in group.rungs:
        if rung.state == "up" and rung.down_alone:
            verb = " hold " if len(rung.down_alone) > 1 else " alone holds "
            who = _some([names.get(origin, origin) for origin in rung.down_alone])
            told.append(Sentence("warning", (*who, verb, Name(rung.processor), " for down; the fleet does not.")))
    return told


def _out(rungs: Iterable[RungPicture], names: Mapping[str, str]) -> list[Part]:
    parts: list[Part] = []
    for rung in rungs:
        is_isolated = rung.state == "isolated"
        parts += [" and "] if parts else []
        parts += [Name(rung.processor), " is taken out by hand" if is_isolated else " is down"]
        if rung.since is not None:
            parts += [" since ", Clock(rung.since), " (", Span(rung.since), ")"]
        if rung.by is not None:
            parts += [" through " if is_isolated else ", noticed by ", Name(names.get(rung.by, rung.by))]
    return parts


def _work(group: GroupPicture) -> list[Part]:
    waiting = f"{group.pending:,} {'waits' if group.pending == 1 else 'wait'}"
    if group.route is None:
        return ["nobody takes work, ", waiting]
    users = f"{group.workers:,} {'worker uses ' if group.workers == 1 else 'workers use '}"
    return [users if group.workers else "work goes to ", Name(group.route), ", ", waiting]


def _probe(rungs: Sequence[RungPicture], names: Mapping[str, str]) -> list[Part]:
    """Say what is done to get the most wanted of *rungs* back."""
    for rung in rungs:
        if rung.state == "isolated":
            continue
        if rung.prober is not None:
            return ["; ", Name(names.get(rung.prober, rung.prober)), " probes ", Name(rung.processor), " now"]
        if rung.next_probe is not None:
            return ["; next probe ", Due(rung.next_probe)]
    if all(rung.state == "isolated" for rung in rungs):
        return ["; not probed before it is reset"]
    return ["; no probe is due"]


def _of_workers(picture: FleetPicture) -> list[Sentence]:
    told: list[Sentence] = []
    degraded = [worker.name for worker in picture.workers if worker.is_degraded]
    if degraded:
        go = "goes" if len(degraded) == 1 else "go"
        told.append(Sentence("warning", (*_some(degraded), f" cannot reach the bus and {go} on alone.")))
    # By when the bus was read, not by now: while it is away nobody can be heard.
    silent = [worker.name for worker in picture.workers if picture.read_at - worker.told > SILENT_SECONDS]
    if silent:
        told.append(Sentence("warning", ("Nothing was heard lately of ", *_some(silent), ".")))
    return told


def _all_is_well(picture: FleetPicture) -> Sentence:
    rungs = sum(len(group.rungs) for group in picture.groups)
    if not rungs:
        return Sentence("good", ("No ladder is known yet.",))
    waiting = sum(group.pending for group in picture.groups)
    running = sum(group.active for group in picture.groups)
    what = "The one rung is up" if rungs == 1 else f"All {rungs} rungs are up"
    who = f"{len(picture.workers):,} worker{'' if len(picture.workers) == 1 else 's'}"
    return Sentence("good", (f"{what}: {who}, {running:,} running, {waiting:,} waiting.",))


def _some(names: list[str]) -> list[Part]:
    """Name a few and count the rest."""
    shown: list[str | Name] = [Name(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        shown.append(f"{len(names) - NAMED} more")
    parts: list[Part] = []
    for number, part in enumerate(shown):
        parts += [(" and " if number == len(shown) - 1 else ", ")] if number else []
        parts.append(part)
    return parts


def _part_as_json(part: Part) -> dict[str, Any]:
    match part:
        case str():
            return {"text": part}
        case Name():
            return {"name": part.text}
        case Clock():
            return {"clock": part.at}
        case Span():
            return {"span": part.at}
        case Due():
            return {"due": part.at}
