"""The ledger: an effect happens once, whoever asks and whoever dies."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ephemeral_redis.demo.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "ledger.db").close()
    return tmp_path / "ledger.db"


def test_a_widget_is_done_once_and_each_attempt_is_written_down(path: Path) -> None:
    with Ledger(path) as primary, Ledger(path) as backup:
        assert primary.record("w1", "primary")
        assert not backup.record("w1", "backup")
        assert backup.record("w2", "backup")
        assert primary.effects() == {"w1", "w2"}
        attempts = primary.attempts()
    assert [(a.widget, a.service, a.is_repeat) for a in attempts] == [
        ("w1", "primary", False),
        ("w1", "backup", True),
        ("w2", "backup", False),
    ]
    assert [a.at for a in attempts] == sorted(a.at for a in attempts)


def test_effect_and_attempt_are_one_transaction(path: Path) -> None:
    with Ledger(path) as ledger, sqlite3.connect(path) as other:
        other.execute("ALTER TABLE attempts RENAME TO elsewhere")
        with pytest.raises(sqlite3.OperationalError):
            ledger.record("w1", "primary")
        assert ledger.effects() == frozenset()
    other.close()


def test_what_was_recorded_outlives_a_process_killed_while_it_wrote(path: Path) -> None:
    writer = """
import sys
from pathlib import Path
from ephemeral_redis.demo.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
for number in range(1_000_000):
    ledger.record(f"w{number}", "primary")
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", writer, str(path)], stdout=subprocess.PIPE) as process:
        for _ in range(50):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        confirmed = 50 + len(process.stdout.read().splitlines())
    with Ledger(path) as ledger:
        effects, attempts = ledger.effects(), ledger.attempts()
    assert len(effects) >= confirmed
    assert effects == {attempt.widget for attempt in attempts}


def test_a_ledger_is_never_begun_twice(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        Ledger.create(path)
