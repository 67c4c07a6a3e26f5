"""What a fleet's run looks like: fits 80 columns and 24 rows, keeps its height, and says plainly what did not hold."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from ephemeral_redis.demo.fleet.board import FleetBoard, WorkerRow
from ephemeral_redis.demo.fleet.evidence import Evidence
from ephemeral_redis.demo.fleet.scenario import MAX_WORKERS
from ephemeral_redis.demo.fleet.verdict import judge_fleet
from ephemeral_redis.demo.fleet.view import FLEET, fleet_headline, fleet_rows, render_fleet
from ephemeral_redis.demo.timeline import Entry
from ephemeral_redis.demo.view import LineView, render_verdict

NOTHING = Evidence(journals={}, killed={}, exit_codes={}, sent=[], effects=[], attempts=[], entries=[])
HOSTILE = "[bold red]x[/] \x1b[2J\x1b]0;owned\x07 \r\n"


def row(number: int = 1, **values) -> WorkerRow:
    given = {"state": "up", "bus": "shared", "primary": "up", "accepted": 123456, "done": 123450, "rate": 999}
    return WorkerRow(name=f"worker-{number}", **{**given, **values})


def board(*workers: WorkerRow) -> FleetBoard:
    return FleetBoard(elapsed=12.3, sent=1_000_000, done=999_999, workers=workers)


def drawn(renderable, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("primary", ["up", "down", "probing", "isolated"])
@pytest.mark.parametrize("bus", ["shared", "alone"])
def test_nothing_is_cut_at_80_columns(primary: str, bus: str) -> None:
    lines = drawn(render_fleet(board(row(1, primary=primary, bus=bus), row(2, state="killed")), []))
    assert {len(line) for line in lines} == {80}
    text = "\n".join(lines)
    assert "…" not in text
    for shown in ("sent 1000000   done 999999", "worker-1", primary, bus, "123456", "999", "● killed"):
        assert shown in text


def test_the_height_is_the_same_for_every_fleet_and_fits_24_rows() -> None:
    many = [(float(n), Entry(f"probe.failed:pri{n}", float(n))) for n in range(50)]
    heights = {
        len(drawn(render_fleet(board(*map(row, range(workers))), entries)))
        for workers in (2, MAX_WORKERS)
        for entries in ([], many)
    }
    assert len(heights) == 1
    assert heights.pop() <= 24


def test_hostile_text_is_shown_and_never_obeyed() -> None:
    shown = render_fleet(board(dataclasses.replace(row(), name=HOSTILE[:10])), [(1.0, Entry(HOSTILE, 1.0, HOSTILE))])
    assert "\x1b" not in "".join(drawn(shown))


def test_a_run_of_which_nothing_is_known_is_shown_as_such() -> None:
    verdict = judge_fleet(NOTHING)
    assert fleet_headline(verdict).startswith("IT DID NOT HOLD: no worker was killed")
    assert dict(fleet_rows(verdict))["first worker to each other, p50, max"] == "-, -"
    lines = drawn(render_verdict(verdict, FLEET))
    assert {len(line) for line in lines} == {80}


def test_lines_are_at_most_80_columns_wide() -> None:
    stream = io.StringIO()
    LineView(stream, FLEET).verdict(dataclasses.replace(judge_fleet(NOTHING), is_bus_spared=True, prober_killed="w"))
    facts = stream.getvalue().splitlines()[2:]
    assert len(facts) == 12
    assert max(map(len, facts)) <= 80
