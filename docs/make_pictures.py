"""Draw the pictures of the documentation from real runs: ``python docs/make_pictures.py``.

The demo is run as ``ephemeral demo`` runs it, then as ``ephemeral demo --workers 3`` does. What the terminal shows at
the end of each becomes ``docs/images/demo.svg`` and ``docs/images/demo-fleet.svg``.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from rich.console import Console

from ephemeral_redis.demo.fleet.run import play_fleet
from ephemeral_redis.demo.fleet.scenario import FleetScenario
from ephemeral_redis.demo.fleet.view import FLEET
from ephemeral_redis.demo.run import play
from ephemeral_redis.demo.scenario import Scenario
from ephemeral_redis.demo.view import DEMO, Judgement, render_verdict

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

    from ephemeral_redis.demo.timeline import Entry
    from ephemeral_redis.demo.view import Look

IMAGES = Path(__file__).parent / "images"
B = TypeVar("B")
V = TypeVar("V", bound=Judgement)


class LastLook(Generic[B, V]):
    """A view that keeps what was shown last."""

    def __init__(self, look: Look[B, V]) -> None:
        self._look = look
        self._entries: list[tuple[float, Entry]] = []
        self._shown: list[ConsoleRenderable] = []

    def entry(self, entry: Entry, elapsed: float) -> None:
        """Keep the entry for the board."""
        self._entries.append((elapsed, entry))

    def board(self, board: B) -> None:
        """Keep the board instead of the one before."""
        self._shown = [self._look.board(board, self._entries)]

    def verdict(self, verdict: V) -> None:
        """Keep the verdict below the board."""
        self._shown.append(render_verdict(verdict, self._look))

    def svg(self, title: str) -> str:
        """Draw what was kept."""
        console = Console(file=io.StringIO(), record=True, width=88, force_terminal=True, color_system="truecolor")
        console.print(*self._shown, sep="")
        return without_remote_fonts(console.export_svg(title=title))


def draw_demo() -> str:
    """Return the last board and the verdict of a run, as SVG."""
    look = LastLook(DEMO)
    anyio.run(play, Scenario(), look)
    return look.svg("ephemeral demo")


def draw_fleet() -> str:
    """Return the same of a fleet's run."""
    look = LastLook(FLEET)
    anyio.run(play_fleet, FleetScenario(workers=3), None, look)
    return look.svg("ephemeral demo --workers 3")


def without_remote_fonts(svg: str) -> str:
    """Drop the fonts that a reader's browser would have to fetch; the text falls back to the system's monospace."""
    return re.sub(r"@font-face\s*\{[^}]*\}\s*", "", svg)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(draw_demo(), encoding="utf-8")
    (IMAGES / "demo-fleet.svg").write_text(draw_fleet(), encoding="utf-8")
