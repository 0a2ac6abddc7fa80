"""Pictures of the benchmark of automatic recovery points, as SVG that is legible on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.auto import LONG

TEXT, GRID = "#7a8088", "#7a808855"
"""Grey that has the same contrast on white and on GitHub's black; there is no background."""
BAR, DOT, GOAL = "#3b8eea", "#e8912d", "#d1495b"


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``overhead.svg``, and ``retry.svg`` if a retry was measured; return what was written.

    :param result: what :func:`benchmarks.auto.compare` returns
    """
    goals = result["summary"]["goals"]
    outputs = {f"Q{name}": output for name, output in result["queries"].items()} | result["nightly"]
    overhead = {
        name: (output["overhead"] * 100, [each * 100 for each in output["rounds"]])
        for name, output in outputs.items()
        if output["plain_seconds"] >= LONG
    }
    title = f"Time added to each output of at least {LONG:g} s, in % ({result['job'].split(',')[0]}; a nightly job)"
    limits = {"goal for the median": goals["median_overhead"] * 100}
    written = [_bars(overhead, limits, title, folder / "overhead.svg")]
    retry = {f"Q{one['query']}": (one["ratio"], [one["ratio"]]) for one in result["retries"]}
    if retry:
        title = f"Retry after a kill at {result['killed_at']:.0%}, as a share of a full run"
        goal = {"goal for the median": goals["median_retry_ratio"]}
        written.append(_bars(retry, goal, title, folder / "retry.svg"))
    return written


def _bars(values: Mapping[str, tuple[float, list[float]]], goals: Mapping[str, float], title: str, file: Path) -> Path:
    """Draw a bar for each query's median, its rounds as dots, and goals as lines."""
    # The salt and the missing date let the same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": file.name, "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        axes = figure.subplots()
        _style(axes, title)
        for position, (median, rounds) in enumerate(values.values()):
            axes.bar(position, median, width=0.7, color=BAR)
            axes.plot([position] * len(rounds), rounds, ".", color=DOT, markersize=5)
        for number, value in enumerate(goals.values()):
            axes.axhline(value, color=GOAL, linewidth=1.2, linestyle=("--", ":")[number % 2])
        axes.set_xticks(range(len(values)), list(values), fontsize=8, rotation=45, ha="right")
        axes.axhline(0, color=TEXT, linewidth=0.8)
        shown = [Patch(color=BAR, label="median"), Line2D([], [], color=DOT, marker=".", linestyle="", label="a round")]
        shown += [
            Line2D([], [], color=GOAL, linestyle=("--", ":")[number % 2], label=f"{name}: {value:g}")
            for number, (name, value) in enumerate(goals.items())
        ]
        axes.legend(handles=shown, loc="upper right", ncols=4, frameon=False, labelcolor=TEXT, fontsize=8)
        axes.margins(x=0.015, y=0.22)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, transparent=True, metadata={"Date": None})
    return file


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, color=TEXT, fontsize=10, loc="left")
    axes.tick_params(colors=TEXT)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(TEXT)
