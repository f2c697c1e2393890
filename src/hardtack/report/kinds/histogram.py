"""How one number is distributed, run by run: kind `histogram`, steps over shared bins; the reader switches views.

    histogram_chart(
        id="attention-0", file="digits 100", title="…", caption="…",
        views=[histogram_view("all blocks", [{"run": 0, "name": "plain", "values": vector}], x="cosine similarity")],
    )

A view's series have `edges` (one more than bins), `density` (the bins' areas sum to one: `y` is then "density", or
give counts and say so) and, if it is to be marked, `mean`. `log` draws the heights in powers of ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import numbers as number_table
from hardtack.report.kinds.chart import switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = (10, 48)  # at least and at most


def histogram_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    views: Sequence[dict[str, Any]],
    label: str = "Show",
    chosen: int = 0,
    numbers: Sequence[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """`label` stands before the switch. Without `numbers` the table says mean, spread and quartiles where known."""
    return {
        "id": id,
        "kind": "histogram",
        "file": file,
        "title": title,
        "caption": caption,
        "views": list(views),
        "choose": switch(label, views, chosen),
        "numbers": list(numbers) if numbers is not None else [_summed(view) for view in views],
    }


def histogram_view(
    name: str,
    series_values: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str = "density",
    log: bool = False,
    bins: int | None = None,
    within: tuple[float, float] | None = None,
    file: str | None = None,
) -> dict[str, Any]:
    """From `values` of each run, over the same bins for all; or from `edges` and `density` that are already counted."""
    values = [np.asarray(entry["values"], dtype=float) for entry in series_values if "values" in entry]
    edges = _edges(values, bins, within) if values else np.empty(0)
    series = [_series(entry, edges) for entry in series_values]
    return {"name": name, "file": file or name, "x": x, "y": y, "log": log, "series": series}


def _edges(values: Sequence[np.ndarray], bins: int | None, within: tuple[float, float] | None) -> np.ndarray:
    joined = np.concatenate(values)
    low, high = within or (float(joined.min()), float(joined.max()))
    if high <= low:  # all the same
        low, high = low - 0.005, high + 0.005
    usual = int(np.clip(np.ceil(2 * min(map(len, values)) ** (1 / 3)), *BINS))  # Rice's rule, for the smallest set
    return np.linspace(low, high, (bins or usual) + 1)


def _series(entry: Mapping[str, Any], edges: np.ndarray) -> dict[str, Any]:
    series_entry = {"run": entry["run"], "name": entry["name"]}
    if "values" not in entry:
        summary = {key: _short(entry[key]) for key in ("edges", "density")}
        return series_entry | summary | ({"mean": float(entry["mean"])} if entry.get("mean") is not None else {})
    values = np.asarray(entry["values"], dtype=float)
    density, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges, density=True)
    quartiles = np.quantile(values, (0.25, 0.5, 0.75))
    return series_entry | {
        "edges": [float(f"{value:.10g}") for value in edges],  # bins of values that hardly differ are narrow
        "density": _short(density),
        "mean": float(f"{values.mean():.6g}"),
        "n": len(values),
        "spread": float(f"{values.std():.6g}"),
        "quartiles": _short(quartiles),
    }


def _short(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in np.asarray(values, dtype=float)]


def _summed(view: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for entry in view["series"]:
        summary = [entry.get("mean"), entry.get("spread"), *entry.get("quartiles", (None, None, None))]
        rows.append(
            [entry["name"], *("—" if value is None else f"{value:.4g}" for value in summary), str(entry.get("n", "—"))]
        )
    return number_table(
        ["Run", "mean", "standard deviation", "lower quartile", "median", "upper quartile", "n"], rows, view["name"]
    )


@kinds.register("histogram", words="distributions")
def histogram_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import literal, log_axis, name_series

    figure = Figure(figsize=(4.4, 2.9), layout="constrained")
    axes = figure.add_subplot()
    for entry in view["series"]:
        run = entry["run"]
        faded = run >= len(palette.COLOURS)
        look: dict[str, Any] = {"color": palette.colour(run), "zorder": 1 if faded else 2}
        axes.stairs(entry["density"], entry["edges"], fill=True, alpha=0 if faded else 0.15, color=palette.colour(run))
        dashed = run >= palette.SOLID and not faded
        label = None if faded else literal(entry["name"])
        axes.stairs(
            entry["density"], entry["edges"], label=label, linestyle="--" if dashed else "-", linewidth=1.3, **look
        )
        if "mean" in entry and not faded:
            place = axes.get_xaxis_transform()
            axes.plot(entry["mean"], 0.03, "v", markersize=5, transform=place, **look)
    if view["log"]:
        log_axis(axes)
    axes.set_xlabel(literal(view["x"]))
    axes.set_ylabel(literal(view["y"]))
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    name_series(figure, axes, beside=len(view["series"]) > palette.SOLID, fontsize=8)
    return figure
