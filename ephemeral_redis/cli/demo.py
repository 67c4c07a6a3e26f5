"""``ephemeral demo``: what it is given, where it speaks, and how it ends."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from ephemeral_redis.demo.processes import ServiceStartError
from ephemeral_redis.demo.run import play
from ephemeral_redis.demo.scenario import Scenario
from ephemeral_redis.demo.view import LineView, LiveView

from .interrupt import Interrupted, run_interruptible

if TYPE_CHECKING:
    from collections.abc import Generator

    from ephemeral_redis.demo.verdict import Verdict
    from ephemeral_redis.demo.view import View


def run_demo(*, items: int, rate: float, seed: int, is_live: bool, as_json: bool) -> int:
    """Run the demo to its verdict and return the exit code.

    Raises:
        ValueError: *items* or *rate* is out of its range.
    """
    scenario = Scenario(items=items, rate=rate, seed=seed)
    try:
        with _open_view(sys.stderr if as_json else sys.stdout, is_live=is_live) as view:
            verdict = run_interruptible(partial(play, scenario, view))
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
def _open_view(stream: TextIO, *, is_live: bool) -> Generator[View]:
    console = Console(file=stream)
    # isatty and not rich's own guess: FORCE_COLOR makes it take a file for a terminal.
    if is_live and stream.isatty() and not console.is_dumb_terminal:
        with LiveView(console) as view:
            yield view
    else:
        yield LineView(stream)


def _document(scenario: Scenario, verdict: Verdict) -> dict[str, object]:
    return {
        "holds": verdict.holds,
        "objections": verdict.objections,
        "scenario": asdict(scenario),
        "verdict": asdict(verdict),
    }
