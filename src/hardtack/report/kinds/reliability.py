"""Reliability diagrams side by side: kind `reliability`. Accuracy against confidence, a panel for each run.

A panel has `run`, `name`, `error` (in words), `n` and `bins`: [low, high, count, mean confidence, accuracy] of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import Chart, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Panel(TypedDict):
    """The diagram of one run."""

    run: int
    name: str
    error: str
    n: int
    bins: Sequence[Sequence[float | None]]


def reliability_chart(
    *, id: str, file: str, title: str, caption: str, x: str, panels: Sequence[Panel], numbers: Sequence[Table]
) -> Chart:
    return {
        "id": id,
        "kind": "reliability",
        "file": file,
        "title": title,
        "x": x,
        "panels": list(panels),
        "choose": None,
        "caption": caption,
        "numbers": list(numbers),
    }


@kinds.register("reliability", words="reliability diagrams")
def reliability_figure(chart: dict[str, Any]) -> Figure:
    """Accuracy against confidence, a panel for each run; below, how many images are how sure."""
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import INK, brief, literal, rows_and_columns

    panels = chart["panels"]
    rows, columns = rows_and_columns(len(panels))
    figure = Figure(figsize=(2.1 * columns + 0.3, 2.9 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[4, 1] * rows)
    names = brief([panel["name"] for panel in panels])
    for place, (name, panel) in enumerate(zip(names, panels, strict=True)):
        row, column = divmod(place, columns)
        above, below = (figure.add_subplot(grid[2 * row + part, column]) for part in (0, 1))
        colour = palette.colour(panel["run"])
        low, high, count, confidence, accuracy = (np.array(values) for values in zip(*panel["bins"], strict=True))
        width, middle = 0.94 * (high - low), (low + high) / 2
        above.bar(middle, accuracy, width, color=colour, alpha=0.75)
        above.bar(
            middle, confidence - accuracy, width, bottom=accuracy, facecolor=(1, 1, 1, 0.62), edgecolor=INK,
            linewidth=0.6, hatch="////",
        )  # fmt: skip
        above.plot([0, 1], [0, 1], "--", color=INK, linewidth=0.8)
        below.bar(middle, count, width, color=colour, alpha=0.4)
        above.set_title(literal(f"{name}\ncalibration error {panel['error']}"), fontsize=8)
        above.set(xlim=(0, 1), ylim=(0, 1), xticklabels=[])
        below.set(xlim=(0, 1), xlabel=chart["x"], yticks=[])
        if column == 0:
            above.set_ylabel("accuracy")
            below.set_ylabel("images")
    return figure
