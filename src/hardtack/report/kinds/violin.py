"""How one number is distributed, layer by layer and run by run: kind `violin`; the reader switches views.

    violin_chart(
        id="jacobian-0", file="digits 100", title="…", caption="…", numbers=[…],
        views=[violin_view("block", ["first", "second"], [{"run": 0, "name": "plain", "values": [a, b]}], x="σ_max")],
    )

`values` has a vector for each row, or None. What is drawn of it: `at` and `density` (an outline, 1 at its widest),
`quartiles`, `mean`, `low`, `high` and `n`; of few values `points` instead of an outline. `log`: the scale is in powers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.kinds.chart import switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 6  # values of which an outline would say more than there is
STEPS = 41
LONG = 30  # times the smallest value that the largest is, from which on the scale is in powers


def violin_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    views: Sequence[dict[str, Any]],
    numbers: Sequence[dict[str, Any]],
    label: str = "Of",
) -> dict[str, Any]:
    """`label` stands before the switch."""
    return {
        "id": id,
        "kind": "violin",
        "file": file,
        "title": title,
        "caption": caption,
        "views": list(views),
        "choose": switch(label, views),
        "numbers": list(numbers),
    }


def violin_view(
    name: str, rows: Sequence[str], shape: Sequence[Mapping[str, Any]], *, x: str, file: str | None = None
) -> dict[str, Any]:
    vectors = [vector for entry in shape for vector in entry["values"] if vector is not None]
    finite = np.concatenate([np.asarray(vector, dtype=float) for vector in vectors])
    finite = finite[np.isfinite(finite)]
    log = bool(len(finite)) and finite.min() > 0 and finite.max() > LONG * finite.min()
    series = [
        {"run": entry["run"], "name": entry["name"], "values": [_shape(vector, log) for vector in entry["values"]]}
        for entry in shape
    ]
    return {"name": name, "file": file or name, "rows": list(rows), "x": x, "log": bool(log), "series": series}


def _shape(vector: Any, log: bool) -> dict[str, Any] | None:
    if vector is None:
        return None
    values = np.asarray(vector, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    shape: dict[str, Any] = {
        "quartiles": [_short(value) for value in np.percentile(values, [25, 50, 75])],
        "mean": _short(values.mean()), "low": _short(values.min()), "high": _short(values.max()), "n": len(values),
    }  # fmt: skip
    if len(values) < FEW or values.min() == values.max():
        return shape | {"points": [_short(value) for value in values[:FEW]]}
    at, density = outline(np.log(values) if log else values)
    return shape | {
        "at": [_short(value) for value in (np.exp(at) if log else at)],
        "density": [round(float(value), 4) for value in density],
    }


def outline(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian kernel's density between the smallest and the largest value, 1 at its highest.

    The kernel's width is Silverman's, by the smaller of the standard deviation and the quartiles' distance.
    """
    spread = min(values.std(), np.subtract(*np.percentile(values, [75, 25])) / 1.349 or np.inf)
    width = 0.9 * spread * len(values) ** -0.2
    at = np.linspace(values.min(), values.max(), STEPS)
    density = np.exp(-0.5 * ((at[:, None] - values[None]) / width) ** 2).sum(axis=1)
    return at, density / density.max()


def _short(value: float) -> float:
    return float(f"{value:.5g}")


@kinds.register("violin", words="distributions by layer")
def violin_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import key, literal, log_axis

    series = palette.with_lanes(view["series"])
    rows = view["rows"]
    figure = Figure(figsize=(min(7.2, max(4.4, 0.9 + 0.16 * len(rows) * len(series))), 3.0), layout="constrained")
    axes = figure.add_subplot()
    wide = 0.86 / len(series)
    for lane, entry in enumerate(series):
        for row, shape in enumerate(entry["values"]):
            if shape:
                _violin(
                    axes, shape, row + (lane - (len(series) - 1) / 2) * wide, 0.46 * wide, palette.colour(entry["run"])
                )
    if view["log"]:
        log_axis(axes)
    axes.set_xticks(range(len(rows)), [literal(name) for name in rows])
    longest = max(len(name) for name in rows)
    if longest * len(rows) > 60:
        axes.tick_params(axis="x", labelrotation=90 if longest > 4 else 0, labelsize=7)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(literal(view["x"]))
    if len(chart["views"]) > 1:
        axes.set_title(literal(view["name"]), fontsize=9)
    key(figure, [(entry["name"], palette.colour(entry["run"])) for entry in series])
    return figure


def _violin(axes: Any, shape: dict[str, Any], x: float, half: float, colour: str) -> None:
    from hardtack.report.figures.sheet import INK

    if "points" in shape:
        axes.plot([x] * len(shape["points"]), shape["points"], ".", color=colour, markersize=3)
    else:
        side = half * np.array(shape["density"])
        axes.fill_betweenx(shape["at"], x - side, x + side, color=colour, alpha=0.45, linewidth=0.6, edgecolor=colour)
        low, middle, high = shape["quartiles"]
        axes.plot([x, x], [low, high], color=INK, linewidth=1.6, solid_capstyle="butt")
        axes.plot(x, middle, "_", color="white", markersize=3, markeredgewidth=1)
    axes.plot(x, shape["mean"], "o", color=INK, markersize=1.8)
