"""Bars with intervals: kind `bars`. A group of bars for each row, a bar for each run; largest first.

    bars_chart(
        id="overlap-0", file="digits 100", title="…", caption="…", x="share", rows=["a", "b"], numbers=[…],
        series=[{"run": 0, "name": "plain", "values": [[0.31, 0.25, 0.36], None]}],
    )

A value is `[value, low, high]`, a share from 0 to 1 (any number with `unit="number"`), or None. With `differences` the
reader can choose a run as the baseline: `differences[base][series]` are values less those of the baseline (see
`charts/paired_bars.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import Chart, KeyEntry, Look, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Values = Sequence[Sequence[float | None] | None]


class Bars(TypedDict):
    """The bars of one run, a value for each row; `open` bars are outlines."""

    run: int
    name: str
    values: Values
    look: NotRequired[Look]


def bars_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    x: str,
    rows: Sequence[str],
    series: Sequence[Bars],
    numbers: Sequence[Table],
    total: bool = False,
    lower: bool = False,
    differences: Sequence[Sequence[Values]] = (),
    choose: Mapping[str, Any] | None = None,
    sums: Mapping[str, Any] | None = None,
    unit: Literal["share", "number"] = "share",
    in_order: bool = False,
    key: Sequence[KeyEntry] | None = None,
) -> Chart:
    """`total`: the last row sums up the others and stays last. `lower`: lower is better.

    `in_order`: rows stand as they are given, not the largest first. `key` says what the colours are where they are not
    those of the runs.
    """
    return {
        "id": id,
        "kind": "bars",
        "file": file,
        "title": title,
        "rows": list(rows),
        "total": total,
        "lower": lower,
        "x": x,
        "series": list(series),
        "differences": list(differences),
        "choose": choose,
        "caption": caption,
        "numbers": list(numbers),
        "unit": unit,
        "in_order": in_order,
    } | {name: value for name, value in {"sums": sums, "key": key}.items() if value is not None}


@kinds.register("bars", words="bars with intervals")
def bars_figure(chart: dict[str, Any]) -> Figure:
    """As the page first shows them: with the baseline that is chosen there."""
    from hardtack.report.figures.row_axes import row_axes
    from hardtack.report.figures.sheet import INK, key, literal, look_key

    base = chart["choose"]["chosen"] - 1 if chart["choose"] else -1
    values = [entry["values"] for entry in chart["series"]] if base < 0 else chart["differences"][base]
    bars = [{**entry, "values": values[place]} for place, entry in enumerate(chart["series"]) if place != base]
    lanes = palette.with_lanes(bars)
    shown = [(entry["run"], entry["name"], entry["values"]) for entry in lanes]
    count = len(chart["rows"])
    order = list(range(count)) if chart.get("in_order") else _sorted(shown, count, total=chart["total"])
    figure, axes, lane = row_axes([chart["rows"][row] for row in order], len(shown), height=0.11)
    for at, (run, _, values) in enumerate(shown):
        known = [(place, values[row]) for place, row in enumerate(order) if values[row]]
        y = [place + lane(at) for place, _ in known]
        is_open = lanes[at].get("look") == "open"
        look: dict[str, Any] = (
            {"facecolor": "white", "edgecolor": palette.colour(run)} if is_open else {"color": palette.colour(run)}
        )
        axes.barh(y, [value[0] for _, value in known], 0.7 / len(shown), **look)
        bounds = [(place, value) for place, (_, value) in zip(y, known, strict=True) if value[1] is not None]
        for place, (_, low, high) in bounds:
            axes.plot([low, high], [place, place], color=INK, linewidth=0.8)
    if base < 0:
        if chart.get("unit", "share") == "share":
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
            axes.set_xlim(left=0)
        axes.set_xlabel(literal(chart["x"]))
    else:
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}" if value else "0")
        axes.set_xlabel(literal(f"points above {chart['series'][base]['name']}"))
    if chart.get("key"):
        look_key(figure, chart["key"])
    else:
        key(figure, [(name, palette.colour(run)) for run, name, _ in shown])
    return figure


def _sorted(shown: Sequence[tuple[int, str, Any]], count: int, *, total: bool) -> list[int]:
    """The largest first; a last row that sums them up stays last."""

    def mean(row: int) -> float:
        values = [cells[row][0] for _, _, cells in shown if cells[row]]
        return float(np.mean(values)) if values else -np.inf

    rows = sorted(range(count - total), key=lambda row: -mean(row))
    return [*rows, count - 1] if total else rows
