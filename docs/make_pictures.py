"""Draw the pictures of the documentation from real runs: ``python docs/make_pictures.py``.

The demo is run as ``ephemeral demo`` runs it; what its terminal shows at the end becomes ``docs/images/demo.svg``.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from rich.console import Console

from ephemeral_redis.demo.run import play
from ephemeral_redis.demo.scenario import Scenario
from ephemeral_redis.demo.view import render_board, render_verdict

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

    from ephemeral_redis.demo.board import Board
    from ephemeral_redis.demo.timeline import Entry
    from ephemeral_redis.demo.verdict import Verdict

IMAGES = Path(__file__).parent / "images"


class LastLook:
    """A view that keeps what was shown last."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, Entry]] = []
        self._shown: list[ConsoleRenderable] = []

    def entry(self, entry: Entry, elapsed: float) -> None:
        """Keep the entry for the board."""
        self._entries.append((elapsed, entry))

    def board(self, board: Board) -> None:
        """Keep the board instead of the one before."""
        self._shown = [render_board(board, self._entries)]

    def verdict(self, verdict: Verdict) -> None:
        """Keep the verdict below the board."""
        self._shown.append(render_verdict(verdict))

    def svg(self) -> str:
        """Draw what was kept."""
        console = Console(file=io.StringIO(), record=True, width=88, force_terminal=True, color_system="truecolor")
        console.print(*self._shown, sep="")
        return without_remote_fonts(console.export_svg(title="ephemeral demo"))


def draw_demo() -> str:
    """Return the last board and the verdict of a run, as SVG."""
    look = LastLook()
    anyio.run(play, Scenario(), look)
    return look.svg()


def without_remote_fonts(svg: str) -> str:
    """Drop the fonts that a reader's browser would have to fetch; the text falls back to the system's monospace."""
    return re.sub(r"@font-face\s*\{[^}]*\}\s*", "", svg)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(draw_demo(), encoding="utf-8")
