"""What a run looks like: fits 80 columns, keeps its height, and no text can format it or drive the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from ephemeral_redis.demo.board import Board, Rung
from ephemeral_redis.demo.ledger import Attempt
from ephemeral_redis.demo.timeline import Entry
from ephemeral_redis.demo.verdict import judge
from ephemeral_redis.demo.view import DEMO, LineView, LiveView, printable, render_board, render_verdict

HOSTILE = "[bold red]x[/] \x1b[2J\x1b]0;owned\x07 \r\n" + "w" * 200


def rung(name: str = "pri1 primary", **values) -> Rung:
    given = {"state": "up", "since": 1234.5, "epoch": 1764000000000, "failures": 3, "done": 12345, "rate": 999}
    return Rung(name=name, **{**given, **values})


def board(**values) -> Board:
    given = {"elapsed": 4.2, "items": 300, "sent": 168, "done": 160, "waiting": 3, "running": 32, "signals": ["a"]}
    return Board(**{**given, "rungs": [rung(), rung("pri2 backup")], **values})


def drawn(renderable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("state", ["up", "down", "probing", "isolated"])
def test_nothing_is_cut_at_80_columns(width: int, state: str) -> None:
    lines = drawn(render_board(board(rungs=[rung(state=state), rung("pri2 backup", state=state)]), []), width)
    assert {len(line) for line in lines} == {width}
    assert "…" not in "".join(lines)
    text = "\n".join(lines)
    counts = ["sent 168 of 300", "done 160", "waiting 3", "running 32"]
    for shown in [*counts, "pri1 primary", state, "1234.5 s", "12345", "999"]:
        assert shown in text


def test_the_height_never_changes_and_fits_24_rows() -> None:
    many = [(float(n), Entry(f"probe.failed:pri{n}", float(n))) for n in range(50)]
    heights = {
        len(drawn(render_board(board(signals=signals), entries), 80))
        for signals in ([], ["a"] * 3)
        for entries in ([], many[:4], many)
    }
    assert len(heights) == 1
    assert heights.pop() <= 24


def test_the_newest_entries_stay() -> None:
    many = [(float(n), Entry(f"probe.failed:pri{n}", float(n))) for n in range(50)]
    text = "\n".join(drawn(render_board(board(), many), 80))
    assert "49.00 s  probe.failed:pri49" in text
    assert "probe.failed:pri0" not in text


def test_what_repeats_takes_one_row() -> None:
    failed = [(float(n), Entry("probe.failed:pri1", float(n))) for n in range(50)]
    text = "\n".join(drawn(render_board(board(), [(0.0, Entry("service.killed:primary", 0.0)), *failed]), 80))
    assert "service.killed:primary" in text
    assert "49.00 s  probe.failed:pri1  50 times" in text


def test_hostile_text_is_shown_and_never_obeyed() -> None:
    entries = [(1.0, Entry(HOSTILE, 1.0, HOSTILE))]
    lines = drawn(render_board(board(rungs=[rung(HOSTILE)], signals=[HOSTILE]), entries), 80)
    assert {len(line) for line in lines} == {80}
    text = "\n".join(lines)
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_printable_leaves_ordinary_text_alone() -> None:
    assert printable("failover.requested:pri1→pri2 ü") == "failover.requested:pri1→pri2 ü"
    assert printable("a\x1b[0m\n") == "a\\x1b[0m\\n"


GOOD = judge(["w1"], {"w1"}, [Attempt("w1", "primary", 1.0, is_repeat=False)], [])
BAD = judge(["w1", HOSTILE], {"w1"}, [Attempt("w1", HOSTILE, 1.0, is_repeat=False)], [])


def test_the_verdict_says_plainly_what_holds_and_what_does_not() -> None:
    assert "NOTHING LOST: all 1 widgets are done" in "\n".join(drawn(render_verdict(GOOD, DEMO), 80))
    text = "\n".join(drawn(render_verdict(BAD, DEMO), 80))
    assert "DID NOT HOLD" in text
    assert "\x1b" not in text


def test_lines_are_plain_and_dated() -> None:
    stream = io.StringIO()
    view = LineView(stream, DEMO)
    view.entry(Entry("service.killed:primary", 100.0, "SIGKILL, pid 7"), 2.5)
    view.entry(Entry(HOSTILE, 100.0), 2.5)
    view.board(board())
    view.verdict(GOOD)
    view.verdict(BAD)
    text = stream.getvalue()
    assert text.startswith("   2.50 s  service.killed:primary  SIGKILL, pid 7\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_the_live_board_gives_the_terminal_back() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with LiveView(console, DEMO) as view:
        view.entry(Entry("service.killed:primary", 1.0), 1.0)
        view.board(board())
    text = console.file.getvalue()
    assert "service.killed:primary" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor, hidden while live, is shown again
