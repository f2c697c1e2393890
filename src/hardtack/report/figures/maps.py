"""Heat maps with their numbers, and reliability diagrams beside each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hardtack.report import palette
from hardtack.report.figures.sheet import INK, WIDTH, brief, literal, rows_and_columns

HEAT = LinearSegmentedColormap.from_list("heat", list(palette.HEAT))


def heat_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    """Types by severities, with the means at the right and below where there are any; or any other matrix."""
    names, heads = (view[side] if side in view else chart[side] for side in ("rows", "columns"))
    cells = [[cell[0] if cell else None for cell in row] for row in view["cells"]]
    means = "row_means" in view
    if means:
        cells = [[*row, mean] for row, mean in zip(cells, view["row_means"], strict=True)]
        cells.append([*view["column_means"], view["mean"]])
        names, heads = [*names, "mean"], [*heads, "mean"]
    values = np.array(cells, dtype=float)  # None becomes NaN
    rows, columns = values.shape
    low, high = chart.get("scale", (0, 1))
    names = brief(names)
    aside = 0.07 * max((len(name) - 12 for name in names if len(name) > 12), default=0)  # what long names take
    figure = Figure(figsize=(min(WIDTH, 1.6 + 1.1 * columns) + aside, 0.6 + 0.24 * rows), layout="constrained")
    axes = figure.add_subplot()
    x, y = [*map(float, range(columns))], [*map(float, range(rows))]
    if means:  # a little apart
        x[-1], y[-1] = x[-1] + 0.15, y[-1] + 0.25
    for (row, column), value in np.ndenumerate(values):
        if math.isnan(value):
            axes.text(x[column], y[row], "—" if columns <= 14 else "", ha="center", va="center", fontsize=8)
            continue
        colour = HEAT((value - low) / (high - low))
        axes.add_patch(Rectangle((x[column] - 0.48, y[row] - 0.46), 0.96, 0.92, color=colour, linewidth=0))
        bold = "bold" if means and (row == rows - 1 or column == columns - 1) else "normal"
        if columns > 14:  # no room for numbers
            continue
        said, ink = f"{100 * value:.1f}", _ink_on(colour)
        axes.text(x[column], y[row], said, ha="center", va="center", fontsize=8, color=ink, weight=bold)
    axes.set_xticks(x, [literal(name) for name in heads])
    axes.set_yticks(y, [literal(name) for name in names])
    axes.set_xlim(-0.55, x[-1] + 0.55)
    axes.set_ylim(y[-1] + 0.55, -0.55)
    axes.set_xlabel(chart["x"])
    axes.set_ylabel(chart.get("y", ""))
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(literal(view["name"]), fontsize=9)
    return figure


def _ink_on(colour: Any) -> str:
    """Black or white, whichever reads better."""
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


def reliability_figure(chart: dict[str, Any]) -> Figure:
    """Accuracy against confidence, a panel for each run; below, how many images are how sure."""
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
