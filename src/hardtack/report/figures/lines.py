"""Curves with their bands."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hardtack.report import palette
from hardtack.report.figures.sheet import literal, log_axis, name_series

WARNED = "#a3241c"  # the page's red by day


def lines_figure(chart: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(3.2, 2.3) if chart.get("small") else (4.4, 3.1), layout="constrained")
    axes = figure.add_subplot()
    scale = 1 if chart["y"]["kind"] == "number" else 100
    percent = chart["y"]["kind"] == "percent"
    dashed = any(one["dash"] for one in chart["series"])  # a dash tells robust from clean, or else runs apart
    faint = min(0.15, 0.9 / len(chart["series"]))  # many bands lie on each other
    for one in chart["series"]:
        run = one["run"]
        faded = run is not None and run >= len(palette.COLOURS)
        dash = one["dash"] if dashed else run is not None and run >= palette.SOLID and not faded
        look: dict[str, Any] = {"color": palette.colour(run), "linestyle": "--" if dash else "-"}
        if one["marks"]:
            look |= {"marker": "o", "markersize": 3}
        label = None if faded else literal(one["name"])
        xs, ys = [point[0] for point in one["points"]], [scale * point[1] for point in one["points"]]
        axes.plot(xs, ys, label=label, zorder=1 if faded else 2, **look)
        for x, y, _ in one.get("warned", ()):
            axes.plot(x, scale * y, marker="^", markersize=8, color=WARNED, markeredgecolor="white", zorder=3)
        known = [point for point in one["points"] if len(point) > 2 and point[2] is not None and point[3] is not None]
        if one["band"] and known and not faded:
            low, high = ([scale * point[place] for point in known] for place in (2, 3))
            at = [point[0] for point in known]
            axes.fill_between(at, low, high, color=palette.colour(run), alpha=faint, linewidth=0)
    axes.set_xlabel(chart["x"]["label"])
    axes.set_ylabel(chart["y"]["label"] + (" (%)" if percent else ""))
    if chart["x"].get("whole"):  # layers, say, of which there is no first and a half
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif not chart["x"].get("log") and all(point[0] >= 0 for one in chart["series"] for point in one["points"]):
        axes.set_xlim(left=0)
    for which in ("x", "y"):
        if chart[which].get("log"):
            log_axis(axes, which)
    if percent:
        axes.set_ylim(0, 100)
    name_series(figure, axes, beside=len(chart["series"]) > palette.SOLID)
    return figure
