"""The ``ephemeral`` command: help, version, and one line for each mistake."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

from ephemeral_redis import cli

COMMAND = "import sys; from ephemeral_redis.cli import main; sys.exit(main())"


def ephemeral(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, after the statements of *before*."""
    command = [sys.executable, "-c", before + COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_entry_point_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="ephemeral")
    assert script.load() is cli.main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments: list[str]) -> None:
    done = ephemeral(*arguments)
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "Watch real work survive a real outage." in done.stdout


def test_help_of_a_command_names_every_option() -> None:
    done = ephemeral("demo", "--help")
    assert done.returncode == 0
    for option in ("--items", "--rate", "--seed", "--no-live", "--json"):
        assert option in done.stdout


def test_the_version_is_that_of_the_distribution() -> None:
    done = ephemeral("--version")
    assert (done.returncode, done.stdout) == (0, f"ephemeral {version('ephemeral-redis')}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dmo"], "No such command 'dmo'"),
        (["demo", "--bogus"], "--bogus"),
        (["demo", "left over"], "left over"),
        (["demo", "--items", "many"], "--items"),
        (["demo", "--items", "2"], "items must be at least 3"),
        (["demo", "--rate", "0"], "rate must be a number of widgets a second above 0"),
        (["demo", "--rate", "nan"], "rate must be a number of widgets a second above 0"),
        (["demo", "--seed"], "--seed"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: list[str], said: str) -> None:
    done = ephemeral(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ephemeral: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("missing", "extra", "arguments"),
    [
        ("typer", "cli", ["--help"]),
        ("rich", "cli", ["demo"]),
        ("httpx", "demo", ["demo"]),
        ("uvicorn", "demo", ["demo"]),
    ],
)
def test_a_missing_extra_is_named(missing: str, extra: str, arguments: list[str]) -> None:
    # None in sys.modules is how Python itself marks a module that must not be found.
    done = ephemeral(*arguments, before=f"import sys; sys.modules[{missing!r}] = None; ")
    assert done.returncode == 2
    assert done.stderr == f"ephemeral: this needs {missing}: pip install 'ephemeral-redis[{extra}]'\n"


def test_looking_for_the_command_imports_no_extra() -> None:
    script = "import sys, ephemeral_redis.cli; print(*sorted({'typer', 'rich', 'click', 'httpx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
