"""Distributions as outlines of steps, the mean of each as a mark below."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from hardtack.report import palette
from hardtack.report.figures.sheet import literal, log_axis, name_series


def histogram_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(4.4, 2.9), layout="constrained")
    axes = figure.add_subplot()
    for one in view["series"]:
        run = one["run"]
        faded = run >= len(palette.COLOURS)
        look: dict[str, Any] = {"color": palette.colour(run), "zorder": 1 if faded else 2}
        axes.stairs(one["density"], one["edges"], fill=True, alpha=0 if faded else 0.15, color=palette.colour(run))
        dashed = run >= palette.SOLID and not faded
        label = None if faded else literal(one["name"])
        axes.stairs(one["density"], one["edges"], label=label, linestyle="--" if dashed else "-", linewidth=1.3, **look)
        if "mean" in one and not faded:
            place = axes.get_xaxis_transform()
            axes.plot(one["mean"], 0.03, "v", markersize=5, transform=place, **look)
    if view["log"]:
        log_axis(axes)
    axes.set_xlabel(literal(view["x"]))
    axes.set_ylabel(literal(view["y"]))
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    name_series(figure, axes, beside=len(view["series"]) > palette.SOLID, fontsize=8)
    return figure
