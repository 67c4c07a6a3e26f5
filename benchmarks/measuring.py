"""What every benchmark here shares: figures as rows, rounds of all cases in turn, results that must be right."""

from __future__ import annotations

import gc
import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

Measure = Callable[[], float]
"""Returns seconds for one unit of work."""


@dataclass(frozen=True)
class Goal:
    """Which side of a number a figure should be on; nothing fails for being slow.

    Attributes:
        sign: ``"<="`` or ``">="``.
        bound: The number.
    """

    sign: str
    bound: float

    def is_met_by(self, value: float) -> bool:
        """Whether *value* is on the right side."""
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


def at_most(bound: float) -> Goal:
    """Return the goal of being no more than *bound*."""
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    """Return the goal of being no less than *bound*."""
    return Goal(">=", bound)


@dataclass(frozen=True)
class Row:
    """One measured figure over all rounds.

    Attributes:
        what: What was measured.
        unit: ``x`` for a ratio, else the unit of the values.
        values: One value per round.
        goal: What it should stay on the right side of; None: it is shown for comparison.
    """

    what: str
    unit: str
    values: Sequence[float]
    goal: Goal | None = None

    @property
    def median(self) -> float:
        """The figure: the median of the rounds."""
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        """Whether it has a goal and is on the wrong side of it."""
        return self.goal is not None and not self.goal.is_met_by(self.median)

    def __str__(self) -> str:
        spread = f"({_short(min(self.values))}..{_short(max(self.values))})"
        goal = "" if self.goal is None else f"  {self.goal!s:<8} {'NOT met' if self.is_missed else 'met'}"
        return f"{self.what:<62} {_short(self.median):>8} {self.unit:<5} {spread:<18}{goal}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON knows."""
        goal = None if self.goal is None else str(self.goal)
        return {"what": self.what, "unit": self.unit, "median": self.median, "values": list(self.values), "goal": goal}


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


@dataclass(frozen=True)
class Told:
    """Figures that belong together, as text.

    Attributes:
        what: What was measured.
        value: The figures.
        unit: What they are.
    """

    what: str
    value: str
    unit: str

    def __str__(self) -> str:
        return f"{self.what:<50} {self.value:>32}  {self.unit}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON knows."""
        return {"what": self.what, "value": self.value, "unit": self.unit}


@dataclass(frozen=True)
class Chart:
    """One picture: a figure over something that grows, or beside those of others.

    Attributes:
        name: Of its file.
        title: What it shows.
        x: What grows; empty for bars.
        y: What is measured, with its unit.
        lines: For each name the points; for bars one point each, whose first number is of no matter.
    """

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Result:
    """What one part has found.

    Attributes:
        rows: Its figures.
        charts: Its pictures.
    """

    rows: Sequence[Row | Told]
    charts: Sequence[Chart] = ()


def interleaved(cases: Mapping[str, Measure], rounds: int) -> dict[str, list[float]]:
    """Run all *cases* once a round, so that a slow second of the machine hits them alike."""
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        # What peers import is no garbage: else each full collection walks it, at the cost of whoever is at it.
        gc.collect()
        gc.freeze()
        for name, measure in cases.items():
            figures[name].append(measure())
    return figures


def ratios(over: Iterable[float], under: Iterable[float]) -> list[float]:
    """Return the ratio of two cases, round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]


def bars(name: str, title: str, took: Mapping[str, Sequence[float]], *, unit: str, scale: float) -> Chart:
    """Return the medians of some cases as one picture."""
    lines = {case: [(0.0, statistics.median(values) * scale)] for case, values in took.items()}
    return Chart(name, title, "", unit, lines)


def timed(work: Callable[[], object]) -> float:
    """Return the processor seconds that this thread spends in *work*, so that neighbours do not count."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def run_timed(case: Callable[[int], Awaitable[None]], count: int, backend: str = "asyncio") -> float:
    """Return the processor seconds of one of *count* units of an async case, its loop's start and end excluded."""

    async def clocked() -> float:
        begin = time.process_time()
        await case(count)
        return time.process_time() - begin

    return anyio.run(clocked, backend=backend) / count


def is_there(module: str) -> bool:
    """Whether a peer is installed; one that is not is named and left out."""
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"left out: {module} is not installed (pip install 'ephemeral-redis[bench]')", file=sys.stderr)
    return False


def check(is_right: bool, what: str) -> None:
    """Stop with exit code 1 if a result is wrong: a fast wrong answer is no measurement."""
    if not is_right:
        sys.exit(f"wrong result: {what}")


def machine() -> str:
    """Return what the figures were measured on, in a line."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        python += " without the GIL"
    return f"{python}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"


def splice(document: Path, lines: Sequence[str], mark: str = "figures") -> None:
    """Put *lines* between the marks of *document* that are called *mark*."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, rest = document.read_text(encoding="utf-8").split(begin, 1)
    after = rest.split(end, 1)[1]
    table = "\n".join([begin, "```text", *lines, "```", end])
    document.write_text(before + table + after, encoding="utf-8")
