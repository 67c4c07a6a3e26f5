"""What every benchmark here shares: one figure as a row, interleaved rounds, and results that must be right."""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Measure = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One measured figure over all rounds.

    Attributes:
        what: What was measured.
        unit: ``x`` for a ratio, else the unit of the values.
        values: One value per round.
        goal: What it should stay on the right side of, for the reader; nothing fails for being slow.
    """

    what: str
    unit: str
    values: list[float]
    goal: str = "-"

    def __str__(self) -> str:
        low, middle, high = min(self.values), statistics.median(self.values), max(self.values)
        return f"{self.what:<62} {middle:8.2f} {self.unit:<2} ({low:.2f}..{high:.2f})  goal {self.goal}"


def interleaved(cases: Mapping[str, Measure], rounds: int) -> dict[str, list[float]]:
    """Run all *cases* once a round, so that a slow second of the machine hits them alike."""
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, measure in cases.items():
            figures[name].append(measure())
    return figures


def ratios(over: list[float], under: list[float]) -> list[float]:
    """Return the ratio of two cases, round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]


def check(is_right: bool, what: str) -> None:
    """Stop with exit code 1 if a result is wrong: a fast wrong answer is no measurement."""
    if not is_right:
        sys.exit(f"wrong result: {what}")


def splice(document: Path, lines: Sequence[str], mark: str = "figures") -> None:
    """Put *lines* between the marks of *document* that are called *mark*."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, rest = document.read_text(encoding="utf-8").split(begin, 1)
    after = rest.split(end, 1)[1]
    table = "\n".join([begin, "```text", *lines, "```", end])
    document.write_text(before + table + after, encoding="utf-8")


def main(description: str | None, measure: Callable[[bool], list[Row]]) -> None:
    """Run one benchmark as a program: ``--quick`` for fewer and shorter rounds, ``--into`` a document."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--into", type=Path, help="a document to put the figures into, between its marks")
    options = parser.parse_args()
    lines = [f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"]
    print(lines[0])
    for row in measure(options.quick):
        lines.append(str(row))
        print(row)
    if options.into is not None:
        splice(options.into, lines)
