"""Two dots in a row, clean and under attack, with a line between them: kind `dots`; the reader switches views.

A view has `name`, `file`, `caption`, `rows`, `counts` (images of each row) and `series`: run, name, `clean`
and `robust`, each [value, low, high] for every row, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import Chart, Table, View, switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def dots_chart(
    *, id: str, title: str, x: str, views: Sequence[View], numbers: Sequence[Table], label: str = "Evaluation"
) -> Chart:
    """`label` stands before the switch; the captions are those of the views, and the tables can be sorted."""
    return {
        "id": id,
        "kind": "dots",
        "title": title,
        "x": x,
        "views": list(views),
        "choose": switch(label, views),
        "caption": "",
        "numbers": list(numbers),
        "sortable": True,
    }


@kinds.register("dots", words="dots by class")
def dots_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from hardtack.report.figures.row_axes import row_axes
    from hardtack.report.figures.sheet import key, percent_axis

    series = palette.with_lanes(view["series"])
    figure, axes, lane = row_axes(view["rows"], len(series), height=0.1)
    for at, entry in enumerate(series):
        colour = palette.colour(entry["run"])
        for row in range(len(view["rows"])):
            clean, robust = (values and values[row] for values in (entry["clean"], entry["robust"]))
            y = row + lane(at)
            if clean and robust:
                axes.plot([robust[0], clean[0]], [y, y], color=colour, linewidth=0.8, alpha=0.5)
            if clean:
                axes.plot(clean[0], y, "o", color=colour, markersize=3.5, markerfacecolor="white")
            if robust:
                axes.plot(robust[0], y, "o", color=colour, markersize=3.8)
    percent_axis(axes, -0.01, 1.01)
    axes.set_xlabel(chart["x"] + " (open: clean, filled: under attack)" * any(entry["robust"] for entry in series))
    key(figure, [(entry["name"], palette.colour(entry["run"])) for entry in series])
    return figure
