"""What a run looks like: a live board in a terminal, plain lines anywhere else.

Text goes to rich as ``Text`` and never as markup, and through ``printable`` first, so no name can format the board or
drive the terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Generic, Protocol, Self, TextIO, TypeVar

from rich.console import ConsoleRenderable, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ephemeral_redis._printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from rich.console import Console

    from .board import Board, Rung
    from .timeline import Entry
    from .verdict import Verdict

TIMELINE_ROWS = 11
SIGNAL_ROWS = 3
"""With these two a board is 23 rows high: as much as a terminal of 24 can redraw in place."""

_STATE_STYLES = {"up": "green", "down": "bold red", "probing": "yellow", "isolated": "magenta", "killed": "bold red"}
_ENTRY_STYLES = {
    "service.killed": "bold red",
    "service": "cyan",
    "failover.requested": "bold yellow",
    "failover.restored": "bold green",
    "failover.exhausted": "bold red",
    "worker.killed": "bold red",
    "bus.killed": "bold red",
    "bus.lost": "yellow",
    "bus": "cyan",
    "worker": "cyan",
    "probe.success": "green",
}


class Judgement(Protocol):
    """What a run proved."""

    @property
    def holds(self) -> bool:
        """Whether everything held that should."""
        ...


B = TypeVar("B")
V = TypeVar("V", bound=Judgement)
B_contra = TypeVar("B_contra", contravariant=True)
V_contra = TypeVar("V_contra", bound=Judgement, contravariant=True)


class View(Protocol[B_contra, V_contra]):
    """Where a run shows itself; on the event loop's thread, none of its calls waits."""

    def entry(self, entry: Entry, elapsed: float) -> None:
        """Show what has just happened, *elapsed* seconds into the run."""

    def board(self, board: B_contra) -> None:
        """Show how things stand."""

    def verdict(self, verdict: V_contra) -> None:
        """Show what the run proved."""


@dataclass(frozen=True, slots=True)
class Look(Generic[B, V]):
    """How one kind of run looks.

    Attributes:
        board: Draws a board above the newest entries, each with its seconds into the run, oldest first.
        headline: Says in a line what the run proved or did not.
        rows: Returns what was found, as (label, value).
    """

    board: Callable[[B, Sequence[tuple[float, Entry]]], ConsoleRenderable]
    headline: Callable[[V], str]
    rows: Callable[[V], list[tuple[str, str]]]


class LineView(Generic[B, V]):
    """One plain line per thing that happened, without control codes: for files, pipes and logs.

    Args:
        stream: Where the lines go; flushed after each.
        look: Of the run.
    """

    def __init__(self, stream: TextIO, look: Look[B, V]) -> None:
        self._stream = stream
        self._look = look
        self._broken: BrokenPipeError | None = None

    def entry(self, entry: Entry, elapsed: float) -> None:
        """Print the entry; if nobody reads any more, the next board says so."""
        try:
            print(f"{elapsed:7.2f} s  {entry_text(entry)}", file=self._stream, flush=True)
        except BrokenPipeError as error:
            # Entries come out of signal listeners too, whose errors end with the sink.
            self._broken = error

    def board(self, board: B) -> None:  # noqa: ARG002 - every view is given it
        """Print nothing: a board is out of date at once.

        Raises:
            BrokenPipeError: Nobody reads the lines any more.
        """
        if self._broken:
            raise self._broken

    def verdict(self, verdict: V) -> None:
        """Print it, a fact a line."""
        facts = [f"  {label}: {value}" for label, value in self._look.rows(verdict)]
        print("", self._look.headline(verdict), *facts, sep="\n", file=self._stream, flush=True)


class LiveView(Generic[B, V]):
    """A board that stays in place and is drawn anew again and again; a context manager.

    Args:
        console: A terminal.
        look: Of the run.
    """

    def __init__(self, console: Console, look: Look[B, V]) -> None:
        self._look = look
        self._entries: list[tuple[float, Entry]] = []
        # Drawn by board() alone: rich's own refresh runs in a thread, and the ladder is read on the loop's.
        self._live = Live(console=console, auto_refresh=False)

    def entry(self, entry: Entry, elapsed: float) -> None:
        """Keep the entry for the boards to come."""
        self._entries.append((elapsed, entry))

    def board(self, board: B) -> None:
        """Draw *board* above the entries so far."""
        self._live.update(self._look.board(board, self._entries), refresh=True)

    def verdict(self, verdict: V) -> None:
        """Print it below the last board."""
        self._live.console.print(render_verdict(verdict, self._look))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()


def entry_text(entry: Entry) -> str:
    """Return *entry* in one line."""
    return printable(f"{entry.name}  {entry.detail}".rstrip())


def render_board(board: Board, entries: Sequence[tuple[float, Entry]]) -> ConsoleRenderable:
    """Draw *board* above the newest of *entries*, for 80 columns and more, always of one height.

    Args:
        board: How things stand.
        entries: What happened, each with its seconds into the run, oldest first.
    """
    return Panel(
        Group(
            _progress(board),
            Rule("ladder", style="dim"),
            _ladder(board.rungs),
            Rule("timeline", style="dim"),
            timeline_rows(entries, TIMELINE_ROWS),
            Rule("last signals", style="dim"),
            fixed_rows((Text(printable(name), style="dim") for name in board.signals), SIGNAL_ROWS),
        ),
        title=Text("ephemeral demo"),
        subtitle=Text(f"{board.elapsed:.1f} s"),
        border_style="blue",
    )


def _progress(board: Board) -> ConsoleRenderable:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_row(
        Text(f"sent {board.sent} of {board.items}"),
        ProgressBar(total=board.items, completed=board.done, complete_style="green", finished_style="green"),
        Text(f"done {board.done}   waiting {board.waiting}   running {board.running}"),
    )
    return grid


def _ladder(rungs: Sequence[Rung]) -> ConsoleRenderable:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("rung", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("since", "epoch", "failures", "done", "done/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for rung in rungs:
        table.add_row(
            Text(printable(rung.name)),
            state_text(rung.state),
            *(Text(cell) for cell in (f"{rung.since:.1f} s", str(rung.epoch))),
            *(Text(str(number)) for number in (rung.failures, rung.done, rung.rate)),
        )
    return table


def state_text(state: str) -> Text:
    """Draw a state as a coloured dot and its name."""
    return Text(f"● {state}", style=_STATE_STYLES.get(state, ""))


def timeline_rows(entries: Sequence[tuple[float, Entry]], height: int) -> ConsoleRenderable:
    """Draw the newest of *entries* in *height* rows."""
    # Probes that fail one after the other fill one row, or they would push out what matters.
    runs = [list(run) for _, run in groupby(entries, key=lambda dated: dated[1].name)]
    return fixed_rows((_timeline_row(*run[-1], len(run)) for run in runs[-height:]), height)


def _timeline_row(elapsed: float, entry: Entry, times: int) -> Text:
    kind = entry.name.partition(":")[0]
    style = _ENTRY_STYLES.get(kind) or _ENTRY_STYLES.get(kind.partition(".")[0], "")
    repeated = f"  {times} times" if times > 1 else ""
    return Text.assemble((f"{elapsed:7.2f} s  ", "dim"), (entry_text(entry) + repeated, style))


def fixed_rows(rows: Iterable[Text], height: int) -> ConsoleRenderable:
    """Stack *rows*, each cut to one line, and fill up to *height*, so that the board never jumps."""
    lines = list(rows)
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines, *(Text("") for _ in range(height - len(lines))))


def render_verdict(verdict: V, look: Look[B, V]) -> ConsoleRenderable:
    """Draw *verdict*, for 80 columns and more."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in look.rows(verdict):
        table.add_row(Text(label, style="dim"), Text(value))
    style = "green" if verdict.holds else "red"
    return Panel(
        Group(Text(look.headline(verdict), style=f"bold {style}"), table), title=Text("verdict"), border_style=style
    )


def verdict_headline(verdict: Verdict) -> str:
    """Say in a line what the run proved or did not."""
    if verdict.holds:
        return f"NOTHING LOST: all {verdict.sent} widgets are done, the effect of each exactly once"
    return "IT DID NOT HOLD: " + printable("; ".join(verdict.objections))


def verdict_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Return what the ledger shows, as (label, value)."""
    by = ", ".join(f"{name} {count}" for name, count in verdict.done_by.items())
    restored = seconds_text(verdict.seconds_to_restored)
    if verdict.seconds_to_listen is not None:
        restored += f" ({seconds_text(verdict.seconds_to_listen)} until it listened)"
    return [
        ("widgets sent, done, lost", f"{verdict.sent}, {verdict.done}, {len(verdict.lost)}"),
        ("done by whom", printable(by) or "nobody"),
        ("repeats refused", str(verdict.repeats_refused)),
        ("primary's death to first widget on backup", seconds_text(verdict.seconds_to_backup)),
        ("primary's restart to back in use", restored),
    ]


def seconds_text(value: float | None) -> str:
    """Return a duration in words."""
    return "-" if value is None else f"{value:.2f} s"


DEMO = Look(render_board, verdict_headline, verdict_rows)
"""How the demo of one process looks."""
