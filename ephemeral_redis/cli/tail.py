"""``ephemeral tail``: the signals of a fleet, a line each, as they are raised."""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ephemeral import matches_pattern
from ephemeral.abc import ITEM_SIGNALS
from ephemeral_redis._printable import printable

from .running import ToolError, require_reached, run_tool, tell_problem
from .words import clock_text, json_line, jsonable, payload_text, who, worker_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ephemeral import SignalEvent
    from ephemeral_redis.watch import BusWatch

    from .running import Fleet

_STYLES = {
    "failover.requested": "bold yellow",
    "failover.exhausted": "bold red",
    "failover.restored": "bold green",
    "processing.failed": "red",
    "processing.abandoned": "red",
    "bus.gap": "bold red",
}


NAMES_SECONDS = 3.0
"""Between two looks at who the workers are, at least: whoever is in no list stays unknown, however much is raised."""


def tail(fleet: Fleet, pattern: str, *, with_items: bool, limit: int | None, as_json: bool) -> int:
    """Print signals until there were *limit* or somebody ends it, and return the exit code."""
    return run_tool(partial(_tail, fleet, pattern, with_items=with_items, limit=limit, as_json=as_json))


async def _tail(fleet: Fleet, pattern: str, *, with_items: bool, limit: int | None, as_json: bool) -> int:
    try:
        matches_pattern("", pattern)
    except ValueError as mistake:
        raise ToolError(str(mistake)) from None
    watch = fleet.watch()
    left = limit
    async with watch.signals() as lots:
        async with watch.pictures() as pictures:
            first = await anext(pictures)
        require_reached(watch, first)
        names = worker_names(first)
        show = _show_json if as_json else partial(_show_line, _console(), names)
        looked_at = time.monotonic()
        problem = None
        async for lot in lots:
            if watch.problem != problem:
                problem = watch.problem
                tell_problem(problem)
            wanted = list(_wanted(lot, pattern, with_items=with_items))
            is_stranger = any(event.origin not in names for event in wanted)
            if is_stranger and not as_json and time.monotonic() - looked_at >= NAMES_SECONDS:
                names.update(await _names_now(watch))  # of workers that have started meanwhile
                looked_at = time.monotonic()
            for event in wanted:
                show(event)
                left = None if left is None else left - 1
                if left == 0:
                    return 0
    return 0


async def _names_now(watch: BusWatch) -> dict[str, str]:
    async with watch.pictures() as pictures:
        return worker_names(await anext(pictures))


def _wanted(lot: Iterable[SignalEvent], pattern: str, *, with_items: bool) -> Iterable[SignalEvent]:
    for event in lot:
        if event.signal.startswith("bus.gap:"):
            yield event  # whatever was asked for, some of it may be among what is missing
        elif (with_items or not event.signal.startswith(ITEM_SIGNALS)) and matches_pattern(event.signal, pattern):
            yield event


def _show_json(event: SignalEvent) -> None:
    print(json_line(event_as_json(event)))  # noqa: T201 - said to the user


def event_as_json(event: SignalEvent) -> dict[str, object]:
    """Return a signal as JSON knows it."""
    return {
        "at": event.timestamp,
        "signal": event.signal,
        "key": event.key,
        "payload": jsonable(event.payload),
        "operation_id": event.operation_id,
        "origin": event.origin,
        "path": [] if event.propagation is None else list(event.propagation.path),
    }


def _console() -> Console | None:
    """Return a console where lines are drawn; None: nobody looks at them, so they are printed plain and whole."""
    return Console(width=shutil.get_terminal_size().columns, highlight=False) if sys.stdout.isatty() else None


def _show_line(console: Console | None, names: dict[str, str], event: SignalEvent) -> None:
    line = event_line(event, names)
    if console is None:
        print(line.plain)  # noqa: T201 - said to the user
    else:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def event_line(event: SignalEvent, names: dict[str, str]) -> Text:
    """Return a signal in one line: when, what, about what, with what, raised by whom."""
    scope = event.signal.partition(":")[0]
    line = Text.assemble(
        (clock_text(event.timestamp, event.timestamp, millis=True), "dim"),
        "  ",
        (printable(event.signal), _STYLES.get(scope, "bold")),
    )
    if event.key is not None:
        line.append(f"  key={printable(event.key)}", "cyan")
    if event.operation_id:
        line.append(f"  op={event.operation_id}", "dim")
    if event.payload is not None:
        line.append(f"  {payload_text(event.payload)}")
    return line.append(f"  {who(event.origin, names)}", "dim")
