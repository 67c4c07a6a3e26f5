"""Write the tables of the documentation that the code knows better: ``python docs/make_tables.py``.

The metrics stand in ``docs/telemetry.md``; a test fails when they are not those of the code.
"""

from __future__ import annotations

from pathlib import Path

from ephemeral_redis.telemetry._measures import FAMILIES, Measure
from ephemeral_redis.telemetry.prometheus import name_of

PAGE = Path(__file__).parent / "telemetry.md"
BEGIN, END = "<!-- metrics -->\n", "<!-- /metrics -->"
KINDS = {"counter": "counter", "amount": "up-down counter", "gauge": "gauge"}


def metrics() -> str:
    """Return a table of all metrics for each kind of thing that is measured."""
    return "\n".join(_table(family.labels, family.measures) for family in FAMILIES)


def _table(labels: tuple[str, ...], measures: tuple[Measure, ...]) -> str:
    rows = [
        f"| `{measure.name}` | `{name_of(measure)}` | {KINDS[measure.kind]}{_by(measure)} | {measure.help} |"
        for measure in measures
    ]
    told_by = ", ".join(f"`{label}`" for label in labels)
    return "\n".join(
        [f"By {told_by}:\n", "| OpenTelemetry | Prometheus | kind | |", "| --- | --- | --- | --- |", *rows, ""]
    )


def _by(measure: Measure) -> str:
    return f" by `{measure.by}`" if measure.by else ""


def with_metrics(page: str) -> str:
    """Return *page* with the tables where they belong."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{metrics()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_metrics(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
