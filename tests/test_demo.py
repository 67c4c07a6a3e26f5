"""The whole demo, as a user runs it: real processes, a real kill, a real Ctrl-C at every stage."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ephemeral_redis.cli import demo as command
from ephemeral_redis.demo.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time

RUN = [sys.executable, "-c", "import sys; from ephemeral_redis.cli import main; sys.exit(main())", "demo"]
SHORT = ["--items", "60", "--rate", "120"]

needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds strangers in /proc: Linux only")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the demo under test puts its ledger."""
    place = tmp_path / "place"
    place.mkdir()
    return place


@contextlib.contextmanager
def started(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    # What takes a pipe for a terminal, and a stream that cannot say "→", are the caller's worst.
    environment = {**os.environ, "TMPDIR": str(place), "FORCE_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    process = subprocess.Popen(
        [*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def services_of(place: Path) -> list[int]:
    """Return the processes whose command line names a ledger in *place*."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if str(place).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def test_a_run_into_a_pipe_ends_in_a_verdict_of_nothing_lost(place: Path) -> None:
    with started(place, *SHORT) as process:
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", output)
    assert max(len(line) for line in output.splitlines()) <= 80
    told = re.findall(r"^ *\d+\.\d\d s  (\S+)", output, flags=re.MULTILINE)
    turns = [
        "services.starting",
        "service.killed:primary",
        "failover.requested:pri1\\u2192pri2",
        "service.restarted:primary",
        "failover.restored:pri1",
    ]
    assert [name for name in told if name in turns] == turns
    assert "NOTHING LOST: all 60 widgets are done, the effect of each exactly once" in output
    assert list(place.iterdir()) == []


def test_json_stands_alone_on_stdout(place: Path) -> None:
    with started(place, *SHORT, "--json", "--seed", "5") as process:
        output, errors = process.communicate()
    document = json.loads(output)
    assert process.returncode == 0
    assert document["holds"] is True
    assert document["scenario"] == {"items": 60, "rate": 120.0, "seed": 5}
    verdict = document["verdict"]
    assert (verdict["sent"], verdict["done"], verdict["lost"], verdict["doubled"]) == (60, 60, [], [])
    assert sum(verdict["done_by"].values()) == 60
    assert min(verdict["done_by"].values()) > 0
    assert 0 < verdict["seconds_to_backup"] < 10
    assert 0 < verdict["seconds_to_listen"] < verdict["seconds_to_restored"]
    assert "failover.restored:pri1" in errors


def test_a_verdict_that_does_not_hold_is_exit_code_1(monkeypatch, capsys) -> None:
    async def play(*_: object) -> object:
        return judge(["w1"], set(), [], [])

    monkeypatch.setattr(command, "play", play)
    assert command.run_demo(items=3, rate=1.0, seed=1, is_live=False, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert document["objections"] == ["1 of the widgets sent were lost: w1"]


@needs_proc
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("services.starting", signal.SIGINT),
        ("service.listening:primary", signal.SIGTERM),
        ("widgets.sending", signal.SIGINT),
        ("failover.requested", signal.SIGTERM),
        ("service.restarted:primary", signal.SIGINT),
        ("widgets.sent", signal.SIGINT),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_behind(place: Path, moment: str, number: int) -> None:
    with started(place, *SHORT) as process:
        assert any(moment in line for line in process.stdout)
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == 128 + number
    assert errors.splitlines() == [f"ephemeral: ended by {signal.Signals(number).name}; nothing is left behind"]
    assert services_of(place) == []
    assert list(place.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not its children: Linux only")
def test_services_do_not_outlive_a_demo_that_is_killed(place: Path) -> None:
    with started(place, *SHORT) as process, contextlib.ExitStack() as stack:
        assert any("widgets.sending" in line for line in process.stdout)
        services = [os.pidfd_open(pid) for pid in services_of(place)]
        for service in services:
            stack.callback(os.close, service)
        assert len(services) == 2
        process.kill()
        for service in services:
            assert select.select([service], [], [], 10.0)[0] == [service]


@needs_proc
@pytest.mark.parametrize("last_read", ["services.starting", "service.killed:primary"])
def test_a_reader_that_goes_away_leaves_nothing_behind(place: Path, last_read: str) -> None:
    with started(place, *SHORT) as process:
        assert any(last_read in line for line in process.stdout)
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (1, "")
    assert services_of(place) == []
    assert list(place.iterdir()) == []


def test_the_live_board_in_a_terminal_of_80_columns(place: Path) -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(place), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen([*RUN, *SHORT], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # how a terminal's other end says that it is closed
            while chunk := os.read(ours, 65536):
                output += chunk
        os.close(ours)
    text = output.decode()
    assert process.returncode == 0
    assert "● down" in text
    assert "failover.restored:pri1" in text
    assert "NOTHING LOST" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor, hidden while live, is shown again
