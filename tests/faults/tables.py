"""The tables of what was tried, and their places in documents. Pure, but for `splice`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLACE = re.compile(r"(<!-- tried: ([^>]+?) -->\n).*?(<!-- /tried -->)", re.DOTALL)
RUNS = "runs"
"""The area whose table is that of the runs themselves."""


def tables_of(found: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return area to table.

    Args:
        found: For each run its name, what it is about, versions, numbers of outcomes, and ``tried``: what tests said.
    """
    areas: dict[str, dict[str, list[tuple[str, dict[str, Any]]]]] = {}
    for run in found:
        for tried in run["tried"]:
            areas.setdefault(tried["area"], {}).setdefault(tried["what"], []).append((run["name"], tried))
    heads = {run["name"]: f"{run['name']}: {run['server']}, redis-py {run['redis_py']}" for run in found}
    tables = {area: _area_table(rows, heads) for area, rows in sorted(areas.items())}
    return {RUNS: _runs_table(found), **tables}


def splice(document: Path, tables: dict[str, str]) -> list[str]:
    """Put each table into its place in *document*; return the areas that were filled.

    What is about areas that were not tried now stays: each table says itself what it is of.
    """
    areas: list[str] = []

    def fill(match: re.Match[str]) -> str:
        if match[2] not in tables:
            return match[0]
        areas.append(match[2])
        return f"{match[1]}{tables[match[2]]}\n{match[3]}"

    document.write_text(PLACE.sub(fill, document.read_text(encoding="utf-8")), encoding="utf-8")
    return areas


def _runs_table(found: Sequence[dict[str, Any]]) -> str:
    columns = ("server", "redis_py", "python", "passed", "failed", "skipped", "seconds")
    head = ["run", "", *(column.replace("_", "-") for column in columns)]
    return _table(head, [[run["name"], run["about"], *(_shown(run[column]) for column in columns)] for run in found])


def _area_table(rows: dict[str, list[tuple[str, dict[str, Any]]]], heads: dict[str, str]) -> str:
    """Return a line for each thing tried: figures of the first run that tried it, and how it ended in each run."""
    given = {"area", "what", "outcome"}
    figures = list(
        dict.fromkeys(name for tries in rows.values() for _, tried in tries for name in tried if name not in given)
    )
    lines: list[list[str]] = []
    for what, tries in rows.items():
        shown = next((tried for _, tried in tries if tried["outcome"] == "passed"), tries[0][1])
        outcomes = [_outcome([tried["outcome"] for name, tried in tries if name == run]) for run in heads]
        lines.append([what, *(_shown(shown.get(name, "")) for name in figures), *outcomes])
    return _table(["what", *(name.replace("_", " ") for name in figures), *heads.values()], lines)


def _outcome(outcomes: list[str]) -> str:
    """Return the worst of the outcomes of all tests of one name."""
    if not outcomes:
        return "not tried"
    return "passed" if set(outcomes) == {"passed"} else next(one for one in outcomes if one != "passed")


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}".replace(",", " ") if isinstance(value, int | float) else str(value)
