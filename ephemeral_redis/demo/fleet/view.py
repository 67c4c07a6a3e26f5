"""What a fleet's run looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import ConsoleRenderable, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ephemeral_redis._printable import printable
from ephemeral_redis.demo.view import Look, seconds_text, state_text, timeline_rows

from .verdict import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemeral_redis.demo.timeline import Entry

    from .board import FleetBoard, WorkerRow
    from .verdict import FleetVerdict

_ROWS = 17
"""Rows that workers and timeline share: a board is then 23 rows high, as much as a terminal of 24 can redraw."""

_BUS_STYLES = {"shared": "green", "alone": "yellow"}


def render_fleet(board: FleetBoard, entries: Sequence[tuple[float, Entry]]) -> ConsoleRenderable:
    """Draw *board* above the newest of *entries*, for 80 columns and more, always of one height."""
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, justify="right")
    head.add_row(Text(f"sent {board.sent}   done {board.done}"), Text(f"{len(board.workers)} workers, one health"))
    return Panel(
        Group(
            head,
            Rule("workers", style="dim"),
            _workers(board.workers),
            Rule("timeline", style="dim"),
            timeline_rows(entries, _ROWS - len(board.workers)),
        ),
        title=Text("ephemeral demo --workers"),
        subtitle=Text(f"{board.elapsed:.1f} s"),
        border_style="blue",
    )


def _workers(workers: Sequence[WorkerRow]) -> ConsoleRenderable:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    for name in ("worker", "state", "bus", "primary"):
        table.add_column(name, no_wrap=True)
    for name in ("accepted", "done", "done/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for worker in workers:
        lives = worker.state == "up"
        table.add_row(
            Text(printable(worker.name)),
            state_text(worker.state),
            Text(worker.bus, style=_BUS_STYLES.get(worker.bus, "")) if lives else Text("-"),
            state_text(worker.primary) if lives else Text("-"),
            *(Text(str(number)) for number in (worker.accepted, worker.done, worker.rate)),
        )
    return table


def fleet_headline(verdict: FleetVerdict) -> str:
    """Say in a line what the run proved or did not."""
    if verdict.holds:
        return f"ONE HEALTH, NOTHING LOST: {verdict.done} widgets done, the effect of each exactly once"
    return "IT DID NOT HOLD: " + printable("; ".join(verdict.objections))


def fleet_rows(verdict: FleetVerdict) -> list[tuple[str, str]]:
    """Return what was found, as (label, value)."""
    by = ", ".join(f"{name} {count}" for name, count in verdict.done_by.items())
    downs = sum(turn.state == "down" for turn in verdict.turns)
    ups = sum(turn.state == "up" for turn in verdict.turns)
    doubled = sum(len(turn.told_by) != 1 for turn in verdict.turns)
    return [
        ("widgets accepted, done, lost", f"{verdict.accepted}, {verdict.done}, {len(verdict.lost)}"),
        ("died with the killed worker", str(len(verdict.died))),
        ("done by whom", printable(by) or "nobody"),
        ("repeats refused", str(verdict.repeats_refused)),
        ("failovers, returns, not told once", f"{downs}, {ups}, {doubled}"),
        ("primary's death to first worker away", _several(verdict.seconds_to_first)),
        ("primary's death to last worker away", _several(verdict.seconds_to_last)),
        ("first worker to each other, p50, max", _spread(verdict.spread)),
        ("probes, two at a time", f"{verdict.probes}, {len(verdict.collisions)}"),
        ("prober's death to primary in use", _recovery(verdict)),
        ("bus away, widgets done meanwhile", _away(verdict)),
        ("bus back to last worker sharing", seconds_text(verdict.seconds_to_rejoin)),
    ]


def _several(values: Sequence[float | None]) -> str:
    return ", ".join(map(seconds_text, values)) or "-"


def _spread(values: Sequence[float]) -> str:
    shares = [percentile(values, share) for share in (0.5, 1.0)]
    return ", ".join("-" if value is None else f"{value * 1000:.1f} ms" for value in shares)


def _recovery(verdict: FleetVerdict) -> str:
    seconds = seconds_text(verdict.seconds_to_recover)
    return seconds if verdict.prober_killed is None else f"{seconds} ({verdict.prober_killed} died probing)"


def _away(verdict: FleetVerdict) -> str:
    if verdict.is_bus_spared:
        return "not killed: it is not ours"
    return f"{seconds_text(verdict.bus_seconds)}, {verdict.done_meanwhile}"


FLEET = Look(render_fleet, fleet_headline, fleet_rows)
"""How the demo of a fleet looks."""
