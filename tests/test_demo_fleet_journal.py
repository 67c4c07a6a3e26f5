"""A worker's journal: what is written is with the kernel at once, and is read once, whole."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ephemeral_redis.demo.fleet.board import board_of
from ephemeral_redis.demo.fleet.crew import Crew
from ephemeral_redis.demo.journal import Journal, JournalReader, Line

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_come_back_as_they_were_written_each_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert reader.read() == []
    before = time.monotonic()
    with Journal(path) as journal:
        journal.write("accepted", "w→1")
        journal.write("health", "pri1", state="down", epoch=7, is_local=True)
        first = reader.read()
        journal.write("probe began", "pri1", fence=3)
        second = reader.read()
    assert [(line.kind, line.name, line.state, line.epoch, line.fence, line.is_local) for line in first + second] == [
        ("accepted", "w→1", "", 0, 0, False),
        ("health", "pri1", "down", 7, 0, True),
        ("probe began", "pri1", "", 0, 3, False),
    ]
    stamps = [line.at for line in first + second]
    assert stamps == sorted(stamps)
    assert before <= stamps[0]
    assert stamps[-1] <= time.monotonic()
    assert reader.read() == []


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    path.write_bytes(b'{"at": 1.0, "kind": "left"}\n{"at": 2.0, "ki')
    assert reader.read() == [Line(1.0, "left")]
    with path.open("ab") as file:
        file.write(b'nd": "left"}\n')
    assert reader.read() == [Line(2.0, "left")]


def test_a_journal_of_nothing_writes_nothing() -> None:
    with Journal(None) as journal:
        journal.write("left")


def test_a_writer_that_is_killed_leaves_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    script = f"""
import os, signal
from pathlib import Path
from ephemeral_redis.demo.journal import Journal
Journal(Path({str(path)!r})).write("accepted", "w1")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert [line.name for line in JournalReader(path).read()] == ["w1"]


def test_a_crew_shows_what_its_journals_tell(tmp_path: Path) -> None:
    with (
        Crew(["worker-1", "worker-2"], tmp_path, []) as crew,
        Journal(tmp_path / "worker-1.journal") as one,
        Journal(tmp_path / "worker-2.journal") as two,
    ):
        two.write("bus", state="reached")
        one.write("bus", state="reached")
        one.write("accepted", "w1")
        one.write("accepted", "w2")
        one.write("done", "w1")
        two.write("health", "pri1", state="down", epoch=7)
        two.write("probe began", "pri1", fence=3)
        one.write("bus", state="lost")
        assert [member.name[-1] + line.kind for member, line in crew.read()] == [
            *("2bus", "1bus", "1accepted", "1accepted", "1done", "2health", "2probe began", "1bus"),
        ]
        board = board_of(crew, elapsed=1.0, sent=2, now=time.monotonic())
        assert (board.sent, board.done) == (2, 1)
        assert [(w.state, w.bus, w.primary, w.accepted, w.done, w.rate) for w in board.workers] == [
            ("up", "alone", "up", 2, 1, 1),
            ("up", "shared", "probing", 0, 0, 0),
        ]
        two.write("probe ended", "pri1", fence=3)
        crew.read()
        crew.members[1].kill()
        later = board_of(crew, elapsed=1.0, sent=2, now=time.monotonic() + 1.1)
        assert [(w.state, w.primary, w.rate) for w in later.workers] == [("up", "up", 0), ("killed", "down", 0)]
        assert [member.name for member in crew.survivors] == ["worker-1"]
