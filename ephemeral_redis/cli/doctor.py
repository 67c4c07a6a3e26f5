"""``ephemeral doctor``: what is misconfigured or unwell in a fleet, what it means, and the fix."""

from __future__ import annotations

import shutil
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ephemeral_redis._printable import printable
from ephemeral_redis.watch.findings import as_json as finding_as_json
from ephemeral_redis.watch.findings import find

from .running import run_tool, unusable
from .words import json_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemeral_redis.watch.findings import Facts, Finding

    from .running import Fleet

_STYLES = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}


def doctor(fleet: Fleet, *, as_json: bool) -> int:
    """Look once, print what was found, and return the exit code: 1 if anything needs action."""
    return run_tool(partial(_doctor, fleet, as_json=as_json))


async def _doctor(fleet: Fleet, *, as_json: bool) -> int:
    watch = fleet.watch()
    facts = await watch.examine()
    if facts is None:
        raise unusable(watch, watch.problem)
    found = find(facts)
    if as_json:
        print(json_line(_document(facts, found)))  # noqa: T201 - said to the user
    else:
        _print(facts, found)
    return 1 if any(finding.needs_action for finding in found) else 0


def _document(facts: Facts, found: Sequence[Finding]) -> dict[str, object]:
    return {
        "namespace": facts.picture.namespace,
        "at": facts.picture.at,
        "is_well": not any(finding.needs_action for finding in found),
        "findings": [finding_as_json(finding) for finding in found],
        "looked_at": _looked_at(facts),
    }


def _looked_at(facts: Facts) -> dict[str, int]:
    groups = facts.picture.groups
    return {
        "workers": len(facts.picture.workers),
        "ladders": len(groups),
        "rungs": sum(len(group.rungs) for group in groups),
        "scopes": facts.picture.scopes_known,
    }


def _print(facts: Facts, found: Sequence[Finding]) -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    lines = [line for finding in found for line in _lines(finding, width)]
    lines.append(_verdict(facts, found))
    if sys.stdout.isatty():
        Console(highlight=False).print(*lines, sep="\n")
    else:
        print("\n".join(line.plain for line in lines))  # noqa: T201 - said to the user


def _lines(finding: Finding, width: int) -> list[Text]:
    head = Text.assemble(
        (f"{finding.severity.upper():<9}", _STYLES[finding.severity]), (printable(finding.subject), "bold")
    )
    said = {"found": finding.found, "means": finding.means, "fix": finding.fix}
    rows = [
        Text.assemble((f"  {label if number == 0 else '':<6} ", "dim"), part)
        for label, text in said.items()
        for number, part in enumerate(textwrap.wrap(printable(text), width - 9, break_on_hyphens=False))
    ]
    return [head, *rows, Text("")]


def _verdict(facts: Facts, found: Sequence[Finding]) -> Text:
    act = sum(finding.needs_action for finding in found)
    looked_at = ", ".join(f"{what} {count}" for what, count in _looked_at(facts).items())
    if act:
        count = f"{len(found)} finding{'' if len(found) == 1 else 's'}"
        return Text(f"Of {count}, {act} to act on. Looked at: {looked_at}.", style="bold red")
    return Text(f"Nothing needs action. Looked at: {looked_at}.", style="bold green")
