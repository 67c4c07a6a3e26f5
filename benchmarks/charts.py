"""Draws what the parts have found, in a file for each picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from measuring import Chart

OURS, THEIRS = "#2563eb", "#94a3b8"


def draw(charts: Iterable[Chart], folder: Path) -> None:
    """Write each of *charts* into *folder* as an SVG that reads in light and in dark."""
    import matplotlib as mpl  # noqa: PLC0415  only who draws needs it

    mpl.use("svg")
    # One text each, not one shape a letter; and the same bytes for the same figures.
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "ephemeral", "font.family": "sans-serif", "font.size": 10}
    )
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        _draw(chart, folder / f"{chart.name}.svg")


def _draw(chart: Chart, file: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    is_bars = not chart.x
    figure = Figure(figsize=(7.2, 0.36 * len(chart.lines) + 1.0) if is_bars else (7.2, 3.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    if is_bars:
        _bars(axes, chart)
    else:
        for name, points in chart.lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", color=OURS, label=name)
        axes.set_xscale("log")
        axes.set_xticks([x for points in chart.lines.values() for x, _ in points])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_locator(axes.xaxis.get_major_locator().__class__([]))
        axes.set_xlabel(chart.x)
        axes.set_ylabel(chart.y)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None})


def _bars(axes, chart: Chart) -> None:
    found = sorted(((points[0][1], name) for name, points in chart.lines.items()), reverse=True)
    values, names = [value for value, _ in found], [name for _, name in found]
    colours = [OURS if name.startswith("ephemeral") else THEIRS for name in names]
    drawn = axes.barh(names, values, color=colours)
    axes.bar_label(
        drawn, [f"{value:,.2f} {chart.y}" if value < 100 else f"{value:,.0f} {chart.y}" for value in values], padding=4
    )
    if values and max(values) > 30 * min(values):
        axes.set_xscale("log")
        axes.set_xlim(right=max(values) * 6)
    else:
        axes.set_xlim(right=max(values) * 1.2)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(left=False)
