"""Distributions layer by layer, as paper 4 draws them: a layer at each place below, a violin for each run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hardtack.report import palette
from hardtack.report.figures.sheet import INK, key, literal, log_axis


def violin_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    series = palette.with_lanes(view["series"])
    rows = view["rows"]
    figure = Figure(figsize=(min(7.2, max(4.4, 0.9 + 0.16 * len(rows) * len(series))), 3.0), layout="constrained")
    axes = figure.add_subplot()
    wide = 0.86 / len(series)
    for lane, one in enumerate(series):
        for row, found in enumerate(one["values"]):
            if found:
                _violin(
                    axes, found, row + (lane - (len(series) - 1) / 2) * wide, 0.46 * wide, palette.colour(one["run"])
                )
    if view["log"]:
        log_axis(axes)
    axes.set_xticks(range(len(rows)), [literal(name) for name in rows])
    longest = max(len(name) for name in rows)
    if longest * len(rows) > 60:
        axes.tick_params(axis="x", labelrotation=90 if longest > 4 else 0, labelsize=7)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(literal(view["x"]))
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    key(figure, [(one["name"], palette.colour(one["run"])) for one in series])
    return figure


def _violin(axes: Axes, found: dict[str, Any], x: float, half: float, colour: str) -> None:
    if "points" in found:
        axes.plot([x] * len(found["points"]), found["points"], ".", color=colour, markersize=3)
    else:
        side = half * np.array(found["density"])
        axes.fill_betweenx(found["at"], x - side, x + side, color=colour, alpha=0.45, linewidth=0.6, edgecolor=colour)
        low, middle, high = found["quartiles"]
        axes.plot([x, x], [low, high], color=INK, linewidth=1.6, solid_capstyle="butt")
        axes.plot(x, middle, "_", color="white", markersize=3, markeredgewidth=1)
    axes.plot(x, found["mean"], "o", color=INK, markersize=1.8)
