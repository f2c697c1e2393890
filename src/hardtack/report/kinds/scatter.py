"""One number of every run against another: kind `scatter`, a dot for each run; the reader switches views.

    scatter_chart(
        id="sparsity-worst", file="cifar10", title="…", caption="…",
        views=[scatter_view("all", [{"run": 0, "name": "plain", "x": 0.1, "y": 0.3}], x="sparsity", y="accuracy")],
    )

A point may have `low` and `high` of its y, and be `open`: a ring for a number from elsewhere. `x_kind` and `y_kind` are
percent or number. How the two go together is said below: Spearman's and Pearson's correlation of the points that are
not open, from five on: of fewer even a perfect order of ranks is no evidence (one order in 24 for four).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import KeyEntry, numbers, switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["percent", "number"]


def scatter_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    views: Sequence[dict[str, Any]],
    label: str = "Against",
    each: str = "run",
    key: Sequence[KeyEntry] | None = None,
) -> dict[str, Any]:
    """`label` stands before the switch, `each` is what a dot stands for.

    `key` says what the colours are where they are not those of the runs.
    """
    for view in views:
        view["caption"] = " · ".join(part for part in (caption, _together(view["series"], each)) if part)
    return {
        "id": id,
        "kind": "scatter",
        "file": file,
        "title": title,
        "caption": "",
        "views": list(views),
        "choose": switch(label, views),
        "numbers": [_numbers(view, each) for view in views],
    } | ({} if key is None else {"key": key})


def scatter_view(
    name: str,
    points: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    x_kind: Kind = "number",
    y_kind: Kind = "number",
    x_log: bool = False,
    file: str | None = None,
) -> dict[str, Any]:
    series = [
        {
            "run": entry["run"],
            "name": entry["name"],
            "open": bool(entry.get("open")),
            **{key: _short(entry.get(key)) for key in ("x", "y", "low", "high")},
        }
        for entry in points
    ]
    axes = {"x": {"label": x, "kind": x_kind, "log": x_log}, "y": {"label": y, "kind": y_kind}}
    return {"name": name, "file": file or name, **axes, "series": series}


FEWEST = 5  # points: the smallest number whose perfect order has a two-sided p below 0.05


def correlation(x: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's and Pearson's; none where one of the two does not vary, or there are fewer than `FEWEST` points."""
    if len(x) < FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]), float(np.corrcoef(x, y)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """From 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def _together(series: Sequence[Mapping[str, Any]], each: str) -> str:
    series = [entry for entry in series if not entry.get("open")]
    correlations = correlation([entry["x"] for entry in series], [entry["y"] for entry in series])
    if correlations is None:
        return f"{len(series)} {each}s are too few for a correlation" if 1 < len(series) < FEWEST else ""
    return f"over {len(series)} {each}s: Spearman's ρ {correlations[0]:.2f}, Pearson's r {correlations[1]:.2f}".replace(
        "-", "−"
    )


def _numbers(view: Mapping[str, Any], each: str) -> dict[str, Any]:
    rows = [
        [
            entry["name"] + (" (paper)" if entry.get("open") else ""),
            *(_said(entry[axis], view[axis]["kind"]) for axis in ("x", "y")),
        ]
        for entry in view["series"]
    ]
    return numbers([each.capitalize(), view["x"]["label"], view["y"]["label"]], rows, view["name"])


def _said(value: float, kind: Kind) -> str:
    return f"{100 * value:.1f}%" if kind == "percent" else f"{value:.4g}"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


@kinds.register("scatter", words="dots by run")
def scatter_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import INK, literal, log_axis, look_key, name_series

    figure = Figure(figsize=(4.4, 3.1), layout="constrained")
    axes = figure.add_subplot()
    scale = {name: 100 if view[name]["kind"] == "percent" else 1 for name in ("x", "y")}
    faint = [entry for entry in view["series"] if entry["run"] >= len(palette.COLOURS)]
    more = f"{len(faint)} more" if len(faint) < len(view["series"]) else None
    for entry in view["series"]:
        run, x, y = entry["run"], scale["x"] * entry["x"], scale["y"] * entry["y"]
        faded = entry in faint
        if entry["low"] is not None and entry["high"] is not None:
            axes.plot(
                [x, x], [scale["y"] * entry["low"], scale["y"] * entry["high"]], color=INK, linewidth=0.8, zorder=1
            )
        mark = "s" if run >= palette.SOLID and not faded else "o"
        label = literal(entry["name"]) if not faded else more if entry is faint[0] else None
        inside: dict[str, Any] = {"markerfacecolor": "white"} if entry.get("open") else {}
        axes.plot(x, y, mark, color=palette.colour(run), markersize=4 if faded else 6, label=label, zorder=2, **inside)
        if chart.get("key") and not entry.get("open"):
            axes.annotate(literal(entry["name"]), (x, y), (5, 3), textcoords="offset points", fontsize=7)
    for name, put in (("x", axes.set_xlabel), ("y", axes.set_ylabel)):
        put(literal(view[name]["label"]) + (" (%)" if scale[name] == 100 else ""))
    axes.margins(0.12)
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    if view["x"].get("log"):
        log_axis(axes, "x")
    if chart.get("key"):
        look_key(figure, chart["key"])
    else:
        name_series(figure, axes, beside=True, fontsize=8)
    return figure
