"""All benchmarks in one run, or some of them.

    python benchmarks                       the figures, as ratios to peers where there are any
    python benchmarks --quick               only that each runs and that its result is right
    python benchmarks signals calls         some parts
    python benchmarks --into docs           the tables and charts of docs/performance.md, and the figures as JSON

Medians of at least five rounds of all cases in turn, with the least and the most. Peers come with the extra ``bench``;
one that is not installed is named and left out. Exits with 1 if a result is wrong, never for being slow.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import bus
import calls
import counts
import jobs
import memory
import scale
import signals
from charts import draw
from measuring import Result, machine, splice

PARTS = {part.__name__: part for part in (signals, counts, jobs, calls, memory, scale, bus)}
PLACES = {"bus": ("bus.md", "figures")}
"""Which page and mark the figures of a part go to, where that is not its own mark on the page on performance."""


def main() -> None:
    """Run what is asked for, and show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a check, no measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--into", type=Path, metavar="DOCS", help="put tables, charts and figures into the documents")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found = {}
    for name in options.parts or PARTS:
        found[name] = run(name, quick=options.quick, into=options.into)
    if options.json is not None:
        save(found, options.json)


def run(name: str, *, quick: bool, into: Path | None) -> Result:
    """Run one part and show its figures, in the documents too."""
    head = machine()
    print(f"\n{name}: {head}", flush=True)
    begin = time.perf_counter()
    result = PARTS[name].measure(quick)
    lines = [str(row) for row in result.rows]
    print(*lines, f"({time.perf_counter() - begin:.0f} s)", sep="\n", flush=True)
    if into is not None:
        page, mark = PLACES.get(name, ("performance.md", name))
        splice(into / page, [head, *lines], mark)
        draw(result.charts, into / "images" / "performance")
        save({name: result}, into / "figures" / f"{name}.json")
    return result


def save(found: dict[str, Result], file: Path) -> None:
    """Write the figures of some parts as JSON."""
    parts = {name: [row.as_json() for row in result.rows] for name, result in found.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": machine(), "parts": parts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
