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
    faint = [one for one in view["series"] if one["run"] >= len(palette.COLOURS)]
    more = f"{len(faint)} more" if len(faint) < len(view["series"]) else None
    for one in view["series"]:
        run, x, y = one["run"], scale["x"] * one["x"], scale["y"] * one["y"]
        faded = one in faint
        if one["low"] is not None and one["high"] is not None:
            axes.plot([x, x], [scale["y"] * one["low"], scale["y"] * one["high"]], color=INK, linewidth=0.8, zorder=1)
        mark = "s" if run >= palette.SOLID and not faded else "o"
        label = literal(one["name"]) if not faded else more if one is faint[0] else None
        axes.plot(x, y, mark, color=palette.colour(run), markersize=4 if faded else 6, label=label, zorder=2)
    for name, put in (("x", axes.set_xlabel), ("y", axes.set_ylabel)):
        put(literal(view[name]["label"]) + (" (%)" if scale[name] == 100 else ""))
    axes.margins(0.12)
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    name_series(figure, axes, beside=True, fontsize=8)
    return figure
