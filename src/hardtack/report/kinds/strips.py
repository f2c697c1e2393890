"""Distributions as dots in rows: kind `strips`. A row for each condition, a strip of dots for each run.

Every strip has the accuracy under each mask as a dot, the middle half of them as a box, the mean with its interval, and
marks for the clean accuracy and for the share of images that is right in every case.
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


class Strip(TypedDict):
    """`points` are drawn as dots; `quartiles` as a box if there are any; `mean` and `worst` are [value, low, high]."""

    mean: Sequence[float | None]
    worst: Sequence[float | None] | None
    points: Sequence[float]
    quartiles: Sequence[float | None] | None


class Strips(TypedDict):
    """The strips of one run, one for each row; `clean` is [value, low, high]."""

    run: int
    name: str
    clean: Sequence[float | None] | None
    values: Sequence[Strip | None]


def strips_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    x: str,
    rows: Sequence[str],
    series: Sequence[Strips],
    numbers: Sequence[Table],
) -> Chart:
    return {
        "id": id,
        "kind": "strips",
        "file": file,
        "title": title,
        "x": x,
        "rows": list(rows),
        "series": list(series),
        "choose": None,
        "caption": caption,
        "numbers": list(numbers),
    }


@kinds.register("strips", words="distributions")
def strips_figure(chart: dict[str, Any]) -> Figure:
    from hardtack.report.figures.row_axes import row_axes
    from hardtack.report.figures.sheet import INK, key, percent_axis

    series = palette.with_lanes(chart["series"])
    figure, axes, lane = row_axes(chart["rows"], len(series), height=0.2)
    lowest = 1.0
    for at, entry in enumerate(series):
        colour = palette.colour(entry["run"])
        for row, strip in enumerate(entry["values"]):
            if not strip:
                continue
            y = row + lane(at)
            places = np.arange(len(strip["points"]))
            jitter = ((places * 0.618034) % 1 - 0.5) * 0.5 / len(series)
            axes.scatter(strip["points"], y + jitter, s=4, color=colour, alpha=0.5, linewidth=0)
            if strip["quartiles"]:
                axes.boxplot(
                    [strip["points"]], positions=[y], widths=0.5 / len(series), orientation="horizontal",
                    showfliers=False, showcaps=False, whis=0, manage_ticks=False,
                    boxprops={"linewidth": 0.8, "color": INK}, medianprops={"color": INK, "linewidth": 1},
                )  # fmt: skip
            if strip["worst"]:
                axes.plot(strip["worst"][0], y, "x", color=colour, markersize=5)
            if entry["clean"]:
                axes.plot(entry["clean"][0], y, "|", color=colour, markersize=9, markeredgewidth=2)
            shares = [*strip["points"], strip["mean"][0], *(strip["worst"] or [])[:1]]
            lowest = min(lowest, *shares)
    percent_axis(axes, max(0.0, np.floor(10 * lowest - 0.2) / 10))
    axes.set_xlabel(chart["x"])
    key(figure, [(entry["name"], palette.colour(entry["run"])) for entry in series])
    return figure
