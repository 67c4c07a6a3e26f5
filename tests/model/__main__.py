"""Explores all worlds, or those named, and writes what was covered into docs/shared-health.md.

python -m tests.model [--quick] [--into docs/shared-health.md] [NAME…]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .explore import Broken, explore
from .fleet import Fleet
from .worlds import LONG, QUICK, told

BEGIN, END = "<!-- explored -->\n", "<!-- /explored -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="worlds to explore; none: all")
    parser.add_argument("--quick", action="store_true", help="leave out the long ones")
    parser.add_argument("--into", type=Path, help="the page to write to")
    arguments = parser.parse_args()
    worlds = QUICK if arguments.quick else {**QUICK, **{f"{name} (long)": world for name, world in LONG.items()}}
    rows = []
    for name, world in worlds.items():
        if arguments.names and name not in arguments.names:
            continue
        began_at = time.process_time()
        try:
            found = explore(Fleet(world))
        except Broken as broken:
            print(f"| {name} | {told(world)} | BROKEN: {broken}", flush=True)
            raise SystemExit(1) from broken
        rows.append(f"| {name} | {told(world)} | {found.states:,} | {found.edges:,} | {found.at_rest:,} |")
        print(rows[-1], f"{time.process_time() - began_at:.1f} s", flush=True)
    if arguments.into is not None:
        head = "| world | what may happen, at most | states | steps | at rest |\n| --- | --- | --- | --- | --- |\n"
        text = arguments.into.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        arguments.into.write_text(before + BEGIN + head + "\n".join(rows) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
