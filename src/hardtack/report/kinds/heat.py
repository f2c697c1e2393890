"""Heat maps: kind `heat`. Shares by row and column, with their numbers; the reader switches between views."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette, wording
from hardtack.report.kinds.chart import Chart, Table, View, switch
from hardtack.report.kinds.chart import numbers as number_table

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Triple = tuple[float | None, float | None, float | None]
Cells = dict[tuple[str, str], Triple]  # (row, column): value, low, high


def heat_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    x: str,
    views: Sequence[View],
    numbers: Sequence[Table],
    label: str = "Show",
    y: str | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    scale: Sequence[float] | None = None,
) -> Chart:
    """`x` and `y` say what columns and rows are; `label` stands before the switch; colours run through `scale`.

    A view has `name`, `file` and `cells`: [value, low, high] or None, by row and column. `rows` and `columns` are their
    names, given here or in each view. A view may have means: `row_means`, `column_means` and `mean`.
    """
    chart: Chart = {
        "id": id,
        "kind": "heat",
        "file": file,
        "title": title,
        "x": x,
        "views": list(views),
        "choose": switch(label, views),
        "caption": caption,
        "numbers": list(numbers),
    }
    optional = {"y": y, "rows": rows, "columns": columns, "scale": scale}
    return chart | {key: value for key, value in optional.items() if value is not None}


def matrix_chart(
    *, x: str, y: str, views: Sequence[tuple[str, Mapping[tuple[str, str], Triple]]], **about: Any
) -> Chart:
    """A heat map without means; `views` are names and cells by (row, column)."""
    matrix_views = [_view(name, cells) for name, cells in views if cells]
    tables = [
        number_table(
            [y, *view["columns"]],
            [
                [name, *(wording.number(cell and cell[0]) for cell in cells)]
                for name, cells in zip(view["rows"], view["cells"], strict=True)
            ],
            view["name"],
        )
        for view in matrix_views
    ]
    return heat_chart(x=x, y=y, views=matrix_views, numbers=tables, **about)


def close_scale(views: Sequence[tuple[str, Mapping[tuple[str, str], Triple]]], step: float = 0.05) -> list[float]:
    """For all views the narrowest between multiples of `step`, so that shares that differ little look apart."""
    values = [cell[0] for _, cells in views for cell in cells.values() if cell[0] is not None] or [0.0, 1.0]
    low, high = math.floor(min(values) / step), math.ceil(max(values) / step)
    return [round(step * min(low, high - 1), 4), round(step * high, 4)]


def _view(name: str, cells: Mapping[tuple[str, str], Triple]) -> dict[str, Any]:
    rows, columns = (list(dict.fromkeys(key[side] for key in cells)) for side in (0, 1))
    return {
        "name": name,
        "file": name.partition(" (")[0],
        "rows": rows,
        "columns": columns,
        "cells": [[list(cells[row, column]) if (row, column) in cells else None for column in columns] for row in rows],
    }


@kinds.register("heat", words="heat map")
def heat_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    """Types by severities, with the means at the right and below where there are any; or any other matrix."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from hardtack.report.figures.sheet import WIDTH, brief, literal

    heat = heat_colours()

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
    wide = min(WIDTH, 1.6 + 1.1 * columns)
    heads = [str(head) for head in heads]
    slanted = 0.075 * max(map(len, heads)) > (wide - 1.0) / columns  # heads that would run into each other
    heads, above = (brief(heads), 0.05 * max(map(len, brief(heads)))) if slanted else (heads, 0.0)
    figure = Figure(figsize=(wide + aside, 0.6 + 0.24 * rows + above), layout="constrained")
    axes = figure.add_subplot()
    x, y = [*map(float, range(columns))], [*map(float, range(rows))]
    if means:  # a little apart
        x[-1], y[-1] = x[-1] + 0.15, y[-1] + 0.25
    for (row, column), value in np.ndenumerate(values):
        if math.isnan(value):
            axes.text(x[column], y[row], "—" if columns <= 14 else "", ha="center", va="center", fontsize=8)
            continue
        colour = heat((value - low) / (high - low))
        axes.add_patch(Rectangle((x[column] - 0.48, y[row] - 0.46), 0.96, 0.92, color=colour, linewidth=0))
        bold = "bold" if means and (row == rows - 1 or column == columns - 1) else "normal"
        if columns > 14:  # no room for numbers
            continue
        text, ink = f"{100 * value:.1f}", _ink_on(colour)
        axes.text(x[column], y[row], text, ha="center", va="center", fontsize=8, color=ink, weight=bold)
    turned: dict[str, Any] = {"rotation": 35, "ha": "left", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(x, [literal(name) for name in heads], **turned)
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


def heat_colours() -> Colormap:
    """The colours of the page's heat maps by day, for values from 0 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", list(palette.HEAT))


def _ink_on(colour: Any) -> str:
    """Black or white, whichever reads better."""
    from matplotlib.colors import to_rgb

    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"
