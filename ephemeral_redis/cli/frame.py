"""What ``ephemeral top`` shows: a picture as lines of text, the most important first, within a width and a height."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ephemeral_redis._printable import printable
from ephemeral_redis.watch.changes import MAX_STEPS
from ephemeral_redis.watch.headline import headline

from .words import clock_text, sentence_text, size_text, span_text, who, worker_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ephemeral_redis.watch.picture import (
        Change,
        FleetPicture,
        GroupPicture,
        RungPicture,
        ScopeRate,
        ServerPicture,
        WorkerPicture,
    )

_STATES = {"up": ("●", "green"), "down": ("✗", "bold red"), "probing": ("◐", "yellow"), "isolated": ("■", "magenta")}
_LEVELS = {"down": "bold red", "warning": "yellow", "good": "green"}
_MARKS = {"down": "✗ ", "warning": "! ", "good": "● "}
_SAID = {"healed": "put back after a loss"}
"""Kinds of changes that read as something else: whoever is woken takes "healed" for up."""

_EDGE_STYLES = {"down": "bold red", "isolated": "magenta", "restored": "bold green", "reset": "green"}

MOST_ROWS = 40
"""Of a section where there is no end of room; JSON has them all."""

FRESH_SECONDS = 3.0
"""A picture older than this is said to be old, and a worker that has not told of itself for longer, silent."""


class Section(NamedTuple):
    """A part of the frame.

    Attributes:
        head: Its title line.
        rows: Below it; the first ones matter most.
        least: How many of them are shown before any other section gets more.
    """

    head: Text
    rows: list[Text]
    least: int


def frame(picture: FleetPicture, *, width: int, height: int | None) -> list[Text]:
    """Return the lines that show *picture*.

    Args:
        picture: What to show.
        width: Columns; longer lines are cut.
        height: Rows; None: as many as there is something to say.
    """
    names = worker_names(picture)
    above = [_title(picture), *_headline(picture, width), *_ladders(picture, names, height)]
    sections = [
        _changes(picture, names),
        _workers(picture, names),
        _scopes(picture.scopes, picture.scopes_known),
    ]
    room = None if height is None else height - len(above)
    lines = above + [line for section in _fitted(sections, room) for line in section]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines if height is None else lines[:height]


def _fitted(sections: Sequence[Section], room: int | None) -> Iterable[list[Text]]:
    """Share *room* rows: first what each section needs at least, in their order, then the rest, in the same order."""
    if room is None:
        shown = [section.rows[:MOST_ROWS] for section in sections]
    else:
        heads = 2  # a title and the empty line above it
        sizes: list[int] = []
        for section in sections:
            size = min(section.least, len(section.rows), max(0, room - heads))
            room -= size + heads if size else 0
            sizes.append(size)
        for place, section in enumerate(sections):
            if sizes[place]:
                more = min(len(section.rows) - sizes[place], max(0, room))
                sizes[place] += more
                room -= more
        shown = [section.rows[:size] for section, size in zip(sections, sizes, strict=True)]
    for section, rows in zip(sections, shown, strict=True):
        if rows:
            head = section.head
            if len(rows) < len(section.rows):
                head = Text.assemble(head, (f", {len(rows)} of {len(section.rows)} shown", "dim"))
            yield [Text(""), head, *rows]


def _title(picture: FleetPicture) -> Text:
    line = Text.assemble(("ephemeral top", "bold"), "  ", (printable(picture.namespace), "bold cyan"))
    line.append(f"  {clock_text(picture.at, picture.at)}")
    if picture.problem is not None:
        age = f"seen {span_text(picture.age)} ago" if picture.read_at else "never seen"
        line.append(f"  BUS AWAY, {age}", "bold red")
    elif picture.age > FRESH_SECONDS:
        line.append(f"  seen {span_text(picture.age)} ago", "yellow")
    if picture.server is not None:
        line.append(f"  {_server_text(picture.server)}", "dim")
    return line


def _server_text(server: ServerPicture) -> str:
    said = [f"{printable(server.kind)} {printable(server.version)}", f"{server.latency * 1000:.1f} ms"]
    if server.used_memory is not None:
        of = f" of {size_text(server.max_memory)}" if server.max_memory else ""
        said.append(f"{size_text(server.used_memory)}{of}")
    return ", ".join(said)


def _headline(picture: FleetPicture, width: int) -> list[Text]:
    said = [(sentence.level, sentence_text(sentence, picture.at)) for sentence in headline(picture)]
    if picture.problem is None and not picture.workers and not picture.groups:
        said = [("warning", "Nobody has told of itself here: is the namespace spelt right, are workers running?")]
    return [
        Text(("  " if number else "") + part, style=_LEVELS[level])
        for level, text in said
        for number, part in enumerate(_wrapped(_MARKS[level] + text, width - 2))
    ]


def _wrapped(text: str, width: int) -> list[str]:
    """Break *text* at spaces, and a word that is longer than a line wherever it must."""
    lines, line = [""], ""
    for word in text.split(" "):
        rest = word
        if line and len(line) + 1 + len(rest) > width:
            lines[-1] = line
            lines.append("")
            line = ""
        while len(rest) > width:
            lines[-1], rest = rest[:width], rest[width:]
            lines.append("")
        line = f"{line} {rest}" if line else rest
    lines[-1] = line
    return lines


def _ladders(picture: FleetPicture, names: dict[str, str], height: int | None) -> list[Text]:
    # Those with trouble first; where there is no room for all, those without are counted.
    groups = sorted(picture.groups, key=lambda group: (all(rung.state == "up" for rung in group.rungs), group.group))
    room = None if height is None else max(8, height // 2)
    lines: list[Text] = []
    for number, group in enumerate(groups):
        drawn = [Text(""), _group_line(group), *_rung_lines(group, names, picture.at)]
        if room is not None and lines and len(lines) + len(drawn) > room:
            lines.append(Text(f"  … and {len(groups) - number} more ladders; --once shows all", style="dim"))
            break
        lines += drawn
    return lines


def _group_line(group: GroupPicture) -> Text:
    if not group.workers:
        # What is left in the table: rungs that have never been down are not in it.
        return Text.assemble((f"LADDER {printable(group.group)}", "bold"), "  no worker has it now")
    route = "NO RUNG IS HEALTHY" if group.route is None else f"→ {printable(group.route)}"
    ended = {
        "done": group.completed,
        "failed": group.failed,
        "cancelled": group.cancelled,
        "abandoned": group.abandoned,
        "undelivered": group.undelivered,
    }
    counts = ", ".join(f"{count:,} {name}" for name, count in ended.items() if count or name == "done")
    return Text.assemble(
        (f"LADDER {printable(group.group)}", "bold"),
        ("  " + route, "bold red" if group.route is None else ""),
        f"  {group.pending:,} waiting, {group.active:,} running",
        (f"  {counts}", "dim"),
    )


def _rung_lines(group: GroupPicture, names: dict[str, str], now: float) -> list[Text]:
    called = max((len(printable(rung.processor)) for rung in group.rungs), default=0)
    return [_rung_line(rung, names, now, min(called, 20)) for rung in group.rungs]


def _rung_line(rung: RungPicture, names: dict[str, str], now: float, room: int) -> Text:
    mark, style = _STATES[rung.state]
    line = Text.assemble("  ", (f"{mark} {rung.state.upper() if rung.state != 'up' else 'up':<9}", style))
    line.append(f"{printable(rung.processor):<{room}}")
    if rung.since is not None:
        line.append(f"  since {clock_text(rung.since, now)}", "dim" if rung.state == "up" else "")
    if rung.state != "up":
        line.append(f"  by {who(rung.by, names)}")
        line.append(f"  {_probe_text(rung, names, now)}")
        if rung.failed_probes and rung.prober is None:  # beside a prober there is no room in 80 columns
            line.append(f" ({rung.failed_probes} failed)", "dim")
    elif rung.failures:
        line.append(f"  {_count(rung.failures, 'failure')} counted against it")
    if rung.down_alone:
        line.append(f"  held down by {', '.join(who(origin, names) for origin in rung.down_alone)} alone", "yellow")
    return line


def _probe_text(rung: RungPicture, names: dict[str, str], now: float) -> str:
    if rung.prober is not None and rung.probe_until is not None:
        return f"{who(rung.prober, names)} probes, {span_text(rung.probe_until - now)} left"
    if rung.next_probe is not None:
        return "probe due" if rung.next_probe <= now else f"probe in {span_text(rung.next_probe - now)}"
    return "not probed until reset"


def _changes(picture: FleetPicture, names: dict[str, str]) -> Section:
    # Probes that fail one after the other fill one row, or they would push out what matters.
    runs = [list(run) for _, run in groupby(picture.changes, key=lambda change: (change.processor, change.is_edge))]
    steps = [run for run in runs if not run[0].is_edge]
    # Of steps the latest are remembered, so the oldest run of them may have been longer.
    is_cut = sum(map(len, steps)) >= MAX_STEPS
    rows: list[Text] = []
    for run in runs:
        if run[0].is_edge:
            rows += [_change_row(change, "", names, picture.at) for change in run]
        else:
            last = next((change for change in run if change.kind != "probing"), run[0])
            times = sum(change.kind == last.kind for change in run)
            more = "+" if is_cut and run is steps[-1] else ""
            said = f", {times}{more} times" if times > 1 or more else ""
            rows.append(_change_row(last, said, names, picture.at))
    return Section(Text("CHANGES", style="bold"), rows, 3)


def _change_row(change: Change, times: str, names: dict[str, str], now: float) -> Text:
    style = _EDGE_STYLES.get(change.kind, "" if change.is_edge else "dim")
    return Text.assemble(
        ("  " + clock_text(change.at, now), "dim"),
        f"  {printable(change.processor):<12}  ",
        (f"{printable(_SAID.get(change.kind, change.kind)) + times:<24}", style),
        f"  by {who(change.by, names)}",
    )


_COLUMNS: tuple[tuple[str, int, Callable[[WorkerPicture], str]], ...] = (
    ("wait", 6, lambda worker: f"{worker.pending}"),
    ("run", 5, lambda worker: f"{worker.active}"),
    ("raised", 9, lambda worker: f"{worker.raised}"),
    ("outbox", 7, lambda worker: f"{worker.outbox}"),
    ("dropped", 8, lambda worker: f"{worker.dropped}"),
    ("missed", 7, lambda worker: f"{worker.missed}"),
    ("lag ms", 7, lambda worker: f"{worker.lag * 1000:.0f}"),
)


def _workers(picture: FleetPicture, names: dict[str, str]) -> Section:
    longest = max((len(names[worker.origin]) for worker in picture.workers), default=0)
    room = min(max(longest, 12), 24)
    titles = "".join(f"{title:>{wide}}" for title, wide, _ in _COLUMNS)
    head = Text(f"{f'WORKERS {len(picture.workers)}':<{room + 2}}{titles}", style="bold")

    def row(worker: WorkerPicture) -> Text:
        name = Text("  " + names[worker.origin])
        name.truncate(room + 2, overflow="ellipsis", pad=True)
        line = Text.assemble(name, "".join(f"{show(worker):>{wide}}" for _, wide, show in _COLUMNS))
        silent = picture.read_at - worker.told
        if silent > FRESH_SECONDS:
            line.append(f"  silent {span_text(silent)}", "bold yellow")
        if worker.is_degraded:
            line.append("  alone", "bold yellow")
        return line

    def trouble(worker: WorkerPicture) -> tuple[bool, str, str]:
        is_well = not worker.is_degraded and picture.read_at - worker.told <= FRESH_SECONDS
        return is_well, worker.name, worker.origin

    return Section(head, [row(worker) for worker in sorted(picture.workers, key=trouble)], 3)


def _scopes(scopes: Sequence[ScopeRate], known: int) -> Section:
    within = scopes[0].within if scopes else 0.0
    head = Text(f"SCOPES {known}", style="bold")
    head.append(f"  signals a second, over {within:g} s", "dim")

    def row(rate: ScopeRate) -> Text:
        return Text(f"  {rate.count / rate.within:10,.1f}  {printable(rate.scope)}")

    return Section(head, [row(rate) for rate in scopes], 3)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
