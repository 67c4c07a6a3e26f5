"""``ephemeral demo``: what it is given, where it speaks, and how it ends."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TextIO, TypeVar

from rich.console import Console

from ephemeral_redis import ServerStartError, SignalBusError
from ephemeral_redis.demo.fleet.run import play_fleet
from ephemeral_redis.demo.fleet.scenario import FleetScenario
from ephemeral_redis.demo.fleet.verdict import FleetVerdict
from ephemeral_redis.demo.fleet.view import FLEET
from ephemeral_redis.demo.processes import ServiceStartError
from ephemeral_redis.demo.run import play
from ephemeral_redis.demo.scenario import Scenario
from ephemeral_redis.demo.verdict import Verdict
from ephemeral_redis.demo.view import DEMO, LineView, LiveView

from . import complain
from .interrupt import Interrupted, run_interruptible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from ephemeral_redis.demo.view import Look, View

B = TypeVar("B")
V = TypeVar("V", Verdict, FleetVerdict)


def run_demo(*, items: int, rate: float, seed: int, is_live: bool, as_json: bool) -> int:
    """Run the demo to its verdict and return the exit code.

    Raises:
        ValueError: *items* or *rate* is out of its range.
    """
    scenario = Scenario(items=items, rate=rate, seed=seed)
    return _run(scenario, partial(play, scenario), DEMO, is_live=is_live, as_json=as_json)


def run_fleet(
    *, workers: int, redis: str | None, items: int, rate: float, seed: int, is_live: bool, as_json: bool
) -> int:
    """Run the demo of a fleet to its verdict and return the exit code.

    Raises:
        ValueError: *workers*, *items* or *rate* is out of its range.
    """
    if sys.platform == "win32":
        return complain("--workers freezes a process, which Windows cannot; run the demo without it")
    scenario = FleetScenario(workers=workers, items=items, rate=rate, seed=seed)
    try:
        return _run(scenario, partial(play_fleet, scenario, redis), FLEET, is_live=is_live, as_json=as_json)
    except (SignalBusError, ServerStartError) as error:
        return complain(str(error))


def _run(
    scenario: Scenario | FleetScenario,
    play: Callable[[View[B, V]], Awaitable[V]],
    look: Look[B, V],
    *,
    is_live: bool,
    as_json: bool,
) -> int:
    try:
        with _open_view(sys.stderr if as_json else sys.stdout, look, is_live=is_live) as view:
            verdict = run_interruptible(partial(play, view))
    except Interrupted as ended:
        print(f"ephemeral: {ended}; nothing is left behind", file=sys.stderr)  # noqa: T201 - said to the user
        return 128 + ended.number
    except ServiceStartError as error:
        print(f"ephemeral: {error}", file=sys.stderr)  # noqa: T201 - said to the user
        return 1
    if as_json:
        print(json.dumps(_document(scenario, verdict), indent=2))  # noqa: T201 - said to the user
    return 0 if verdict.holds else 1


@contextmanager
def _open_view(stream: TextIO, look: Look[B, V], *, is_live: bool) -> Generator[View[B, V]]:
    console = Console(file=stream)
    # isatty and not rich's own guess: FORCE_COLOR makes it take a file for a terminal.
    if is_live and stream.isatty() and not console.is_dumb_terminal:
        with LiveView(console, look) as view:
            yield view
    else:
        yield LineView(stream, look)


def _document(scenario: Scenario | FleetScenario, verdict: Verdict | FleetVerdict) -> dict[str, object]:
    return {
        "holds": verdict.holds,
        "objections": verdict.objections,
        "scenario": asdict(scenario),
        "verdict": asdict(verdict),
    }
