"""Curves with bands: kind `lines`. The pointer reads all curves at one position of the x axis.

    lines_chart(
        id="sharpness-0", file="digits 100", title="…", caption="…", numbers=[…],
        x={"label": "epoch", "word": "epoch", "suffix": ""}, y={"label": "loss", "kind": "number"},
        series=[line(0, "plain", [[1, 0.9], [2, 0.7]], marks=True)],
    )

A point is `[x, y]`, or `[x, y, low, high]` where the curve has a `band`; bounds may be None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import Chart, KeyEntry, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WARNED = "#a3241c"  # the page's red by day


class XAxis(TypedDict):
    """`word` and `suffix` stand before and after the value that is read: `ε = 8/255`."""

    label: str
    word: str
    suffix: str
    ticks: NotRequired[Sequence[float] | None]
    whole: NotRequired[bool]  # layers, say, which are numbered
    log: NotRequired[bool]


class YAxis(TypedDict):
    """`percent`: shares from 0 to 1. `points`: differences of shares."""

    label: str
    kind: Literal["percent", "points", "number"]
    log: NotRequired[bool]


class Line(TypedDict):
    """A curve. `run` is None where it belongs to no run; `warned` are [x, y, words] to be marked with a triangle."""

    run: int | None
    name: str
    points: Sequence[Sequence[Any]]
    dash: bool
    band: bool
    marks: bool
    warned: NotRequired[Sequence[Sequence[Any]]]


def line(
    run: int | None,
    name: str,
    points: Sequence[Sequence[Any]],
    *,
    dash: bool = False,
    band: bool = False,
    marks: bool = False,
) -> Line:
    return {"run": run, "name": name, "points": points, "dash": dash, "band": band, "marks": marks}


def lines_chart(
    *,
    id: str,
    title: str,
    caption: str,
    x: XAxis,
    y: YAxis,
    series: Sequence[Line],
    numbers: Sequence[Table],
    file: str | None = None,
    sums: Mapping[str, Any] | None = None,
    small: bool | None = None,
    key: Sequence[KeyEntry] | None = None,
) -> Chart:
    """`sums` is a table that is always shown below the curves; `small` charts stand in rows of several.

    `key` says what the colours are where they are not those of the runs.
    """
    chart: Chart = {
        "id": id,
        "kind": "lines",
        "title": title,
        "x": x,
        "y": y,
        "series": list(series),
        "choose": None,
        "caption": caption,
        "numbers": list(numbers),
    }
    optional = {"file": file, "sums": sums, "small": small, "key": key}
    return chart | {key: value for key, value in optional.items() if value is not None}


@kinds.register("lines", words="curves")
def lines_figure(chart: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from hardtack.report.figures.sheet import literal, log_axis, look_key, name_series

    figure = Figure(figsize=(3.2, 2.3) if chart.get("small") else (4.4, 3.1), layout="constrained")
    axes = figure.add_subplot()
    scale = 1 if chart["y"]["kind"] == "number" else 100
    percent = chart["y"]["kind"] == "percent"
    dashed = any(curve["dash"] for curve in chart["series"])  # a dash tells robust from clean, or else runs apart
    faint = min(0.15, 0.9 / len(chart["series"]))  # many bands lie on each other
    for curve in chart["series"]:
        run = curve["run"]
        faded = run is not None and run >= len(palette.COLOURS)
        dash = curve["dash"] if dashed else run is not None and run >= palette.SOLID and not faded
        look: dict[str, Any] = {"color": palette.colour(run), "linestyle": "--" if dash else "-"}
        if curve["marks"]:
            look |= {"marker": "o", "markersize": 3}
        label = None if faded else literal(curve["name"])
        xs, ys = [point[0] for point in curve["points"]], [scale * point[1] for point in curve["points"]]
        axes.plot(xs, ys, label=label, zorder=1 if faded else 2, **look)
        for x, y, _ in curve.get("warned", ()):
            axes.plot(x, scale * y, marker="^", markersize=8, color=WARNED, markeredgecolor="white", zorder=3)
        bounded = [
            point for point in curve["points"] if len(point) > 2 and point[2] is not None and point[3] is not None
        ]
        if curve["band"] and bounded and not faded:
            low, high = ([scale * point[place] for point in bounded] for place in (2, 3))
            at = [point[0] for point in bounded]
            axes.fill_between(at, low, high, color=palette.colour(run), alpha=faint, linewidth=0)
            if len(bounded) == 1:  # no area
                axes.plot([at[0], at[0]], [low[0], high[0]], color=palette.colour(run), linewidth=1)
    axes.set_xlabel(literal(chart["x"]["label"]))
    axes.set_ylabel(literal(chart["y"]["label"] + (" (%)" if percent else "")))
    if chart["x"].get("whole"):  # layers, say, of which there is no first and a half
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif not chart["x"].get("log") and _starts_near_zero([point[0] for c in chart["series"] for point in c["points"]]):
        axes.set_xlim(left=0)
    for which in ("x", "y"):
        if chart[which].get("log"):
            log_axis(axes, which)
    if percent:
        axes.set_ylim(0, 100)
    if chart.get("key"):
        look_key(figure, chart["key"])
    else:
        name_series(figure, axes, beside=len(chart["series"]) > palette.SOLID)
    return figure


def _starts_near_zero(values: Sequence[float]) -> bool:
    """Whether an axis from zero leaves most of its length to the values."""
    return min(values) >= 0 and min(values) <= 0.5 * max(values)
