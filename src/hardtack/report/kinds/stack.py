"""Stacked bars: kind `stack`. What became of the images of each run, as shares of all; the reader switches views.

A view has `name`, `file`, `caption`, `parts` (name and role, which is a colour of `palette.PARTS`) and `bars` (run,
name, n, and a count for each part).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import Chart, Table, View, switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def stack_chart(
    *, id: str, title: str, x: str, views: Sequence[View], numbers: Sequence[Table], label: str = "Evaluation"
) -> Chart:
    """`label` stands before the switch; the captions are those of the views."""
    return {
        "id": id,
        "kind": "stack",
        "title": title,
        "x": x,
        "views": list(views),
        "choose": switch(label, views),
        "caption": "",
        "numbers": list(numbers),
    }


@kinds.register("stack", words="stacked bars")
def stack_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from hardtack.report.figures.row_axes import row_axes
    from hardtack.report.figures.sheet import INK, key, percent_axis

    figure, axes, _ = row_axes([bar["name"] for bar in view["bars"]], 1, height=0.3)
    for row, bar in enumerate(view["bars"]):
        before = 0.0
        for part, count in zip(view["parts"], bar["counts"], strict=True):
            share = count / bar["n"]
            axes.barh(row, share, 0.7, left=before, color=palette.PARTS[part["role"]], edgecolor="white", linewidth=0.6)
            if share > 0.06:
                ink = INK if part["role"] in ("wrong", "0", "1") else "white"
                place = before + share / 2
                axes.text(place, row, f"{100 * share:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            before += share
    percent_axis(axes)
    axes.set_xlabel(chart["x"])
    key(figure, [(part["name"], palette.PARTS[part["role"]]) for part in view["parts"]])
    return figure
