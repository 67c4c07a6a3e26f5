"""Try the bus as people run it: ``python tests/faults [--only RUN …] [--into DOCUMENT …] [arguments of pytest]``.

It takes an hour. ``--keep FILE`` keeps what a run has found, so that runs can be made one by one: the tables then
tell of all that is kept.

Runs all of tests/faults, the long ones too, and tests/contract: against Redis, against Valkey, with no more than the
rights that docs/bus.md gives a worker, and through the lowest redis-py. ``--into docs/deployments.md docs/faults.md``
writes what was tried and how it ended into those pages, between ``<!-- tried: AREA -->`` and ``<!-- /tried -->``; with
fewer runs or tests, into the tables of these alone.
Ctrl-C ends it: once gently, a second time at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from runs import ROOT, Run, all_runs, prepare
from tables import RUNS, splice, tables_of

INTERRUPTED = 130


def main() -> int:
    runs = all_runs()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[run.name for run in runs], help="these runs and no others")
    parser.add_argument("--into", nargs="+", type=Path, default=[], help="documents to write the tables into")
    parser.add_argument("--keep", type=Path, help="keep what is found here, with what earlier runs have left there")
    options, pytest_arguments = parser.parse_known_args()
    os.chdir(ROOT)
    found: list[dict[str, Any]] = []
    for run in runs:
        if options.only and run.name not in options.only:
            continue
        if run.program is None:
            print(f"== {run.name}: not tried, {run.missing}", flush=True)
            continue
        print(f"== {run.name}: {run.about}, {run.server_version}", flush=True)
        outcome = attempt(run, pytest_arguments)
        if outcome is None:
            print(f"== {run.name}: stopped", flush=True)
            return INTERRUPTED
        found.append(outcome)
    shown = kept(options.keep, found, [run.name for run in runs])
    tables = tables_of(shown)
    if len(shown) < len(runs):
        del tables[RUNS]  # it is of all of them
    for path in options.into:
        print(f"== {path}: {', '.join(splice(path, tables)) or 'has no place for what was tried'}")
    for outcome in found:
        print("== {name}: {passed} passed, {failed} failed, {skipped} skipped in {seconds} s".format(**outcome))
    return int(any(outcome["code"] for outcome in found) or len(found) < len(options.only or runs))


def kept(path: Path | None, found: list[dict[str, Any]], order: list[str]) -> list[dict[str, Any]]:
    """Return what was found with what was kept before, in the order of the runs, and keep that."""
    if path is None:
        return found
    outcomes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    outcomes |= {outcome["name"]: outcome for outcome in found}
    path.write_text(json.dumps(outcomes), encoding="utf-8")
    return [outcomes[name] for name in order if name in outcomes]


def attempt(run: Run, pytest_arguments: list[str]) -> dict[str, Any] | None:
    """Run the suite once; return what it found, or None if it was interrupted."""
    with tempfile.TemporaryDirectory(prefix="eph-run-") as name:
        folder = Path(name)
        places, arguments = prepare(run, folder)
        environment = {**os.environ}
        for place, first in places.items():
            environment[place] = os.pathsep.join(filter(None, [first, os.environ.get(place)]))
        outcomes = folder / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-p", "report", "--long", "-q", "--outcomes", str(outcomes)]
        code = wait(
            subprocess.Popen(
                [*command, *arguments, *run.paths, *pytest_arguments], env=environment, start_new_session=True
            )
        )
        if code is None:
            return None
        said = json.loads(outcomes.read_text(encoding="utf-8")) if outcomes.exists() else {}
        empty = {"python": "?", "redis_py": "?", "seconds": 0, "passed": 0, "failed": 0, "skipped": 0, "tried": []}
        about = f"{run.about}; `{shlex.join(pytest_arguments)}`" if pytest_arguments else run.about
        return {**empty, **said, "name": run.name, "about": about, "server": run.server_version, "code": code}


def wait(child: subprocess.Popen[bytes]) -> int | None:
    """Return how *child* ended; None if we were interrupted, and so was it.

    It is a session of its own: at the terminal Ctrl-C would reach it twice, and cut its clean-up short.
    """
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.send_signal(2)
    try:
        child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()
    return None


if __name__ == "__main__":
    sys.exit(main())
