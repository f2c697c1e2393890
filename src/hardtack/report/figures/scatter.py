"""One number of every run against another."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from hardtack.report import palette
from hardtack.report.figures.sheet import INK, literal, name_series


def scatter_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(4.4, 3.1), layout="constrained")
    axes = figure.add_subplot()
    scale = {name: 100 if view[name]["kind"] == "percent" else 1 for name in ("x", "y")}
    for one in view["series"]:
        run, x, y = one["run"], scale["x"] * one["x"], scale["y"] * one["y"]
        faded = run >= len(palette.COLOURS)
        if one["low"] is not None and one["high"] is not None:
            axes.plot([x, x], [scale["y"] * one["low"], scale["y"] * one["high"]], color=INK, linewidth=0.8, zorder=1)
        mark = "s" if run >= palette.SOLID and not faded else "o"
        label = None if faded else literal(one["name"])
        axes.plot(x, y, mark, color=palette.colour(run), markersize=4 if faded else 6, label=label, zorder=2)
    for name, put in (("x", axes.set_xlabel), ("y", axes.set_ylabel)):
        put(literal(view[name]["label"]) + (" (%)" if scale[name] == 100 else ""))
    axes.margins(0.12)
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    name_series(figure, axes, beside=True, fontsize=8)
    return figure
