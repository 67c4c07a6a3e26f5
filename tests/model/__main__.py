"""Explores all worlds, or those named, and writes what was covered into docs/shared-health.md.

python -m tests.model [--quick] [--into docs/shared-health.md] [NAME…]
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from .explore import Broken, explore
from .fleet import Fleet
from .worlds import LONG, QUICK, told

BEGIN, END = "<!-- explored -->\n", "<!-- /explored -->"
HEAD = "| world | what may happen, at most | states | steps | at rest |\n| --- | --- | --- | --- | --- |\n"
WORLDS = {**QUICK, **{f"{name} (long)": world for name, world in LONG.items()}}


def write(into: Path, name: str, row: str) -> None:
    """Put a world's row into the page's table, in place of its last one; others stay."""
    before, _, rest = into.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {match[1]: match[0] for match in re.finditer(r"^\| ([^|]+) \| .*\n", table, re.MULTILINE)}
    rows[name] = f"{row}\n"
    kept = "".join(rows[known] for known in WORLDS if known in rows)
    into.write_text(before + BEGIN + HEAD + kept + END + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="worlds to explore; none: all")
    parser.add_argument("--quick", action="store_true", help="leave out the long ones")
    parser.add_argument("--into", type=Path, help="the page to write to")
    arguments = parser.parse_args()
    for name in arguments.names or (QUICK if arguments.quick else WORLDS):
        world = WORLDS[name]
        began_at = time.process_time()
        try:
            found = explore(Fleet(world))
        except Broken as broken:
            raise SystemExit(f"{name}: {told(world)}: {broken}") from broken
        row = f"| {name} | {told(world)} | {found.states:,} | {found.edges:,} | {found.at_rest:,} |"
        print(row, f"{time.process_time() - began_at:.1f} s", flush=True)
        if arguments.into is not None:
            write(arguments.into, name, row)


if __name__ == "__main__":
    main()
