"""Surfaces over a square, one for each run, on one scale: kind `surface`, as contours or in 3-D, which can be turned.

    surface_chart(
        id="landscape-0", file="digits", title="…", caption="…", x="…", y="…", z="loss",
        panels=[{"run": 0, "name": "plain", "axis": axis, "values": grid}],
    )

`values[i][j]` is at x = axis[i], y = axis[j]. Levels are further apart the higher they are, so that a round bowl has
evenly spaced rings; what is above the last is cut off there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardtack.base.registry import kinds
from hardtack.report import palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 12
HIGHEST = 0.98  # share of all values that the scale reaches up to


def surface_chart(
    *,
    id: str,
    file: str,
    title: str,
    caption: str,
    x: str,
    y: str,
    z: str,
    panels: Sequence[Mapping[str, Any]],
    numbers: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    low, high = _scale([np.asarray(panel["values"], dtype=float) for panel in panels])
    shares = (np.arange(1, LEVELS) / LEVELS) ** 2
    return {
        "id": id,
        "kind": "surface",
        "file": file,
        "title": title,
        "caption": caption,
        "x": x,
        "y": y,
        "z": z,
        "low": low,
        "high": high,
        "levels": [_short(low + share * (high - low)) for share in shares],
        "panels": [_panel(panel) for panel in panels],
        "choose": {"label": "Show as", "options": ["contours", "3-D"], "chosen": 0},
        "numbers": list(numbers),
    }


def _scale(grids: Sequence[np.ndarray]) -> tuple[float, float]:
    """One for all. A surface that shoots up somewhere must not flatten the others."""
    finite = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(np.quantile(finite, HIGHEST))
    return _short(low), _short(high if high > low else low + 1)


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    grid = np.asarray(panel["values"], dtype=float)
    values = [[_short(value) if np.isfinite(value) else None for value in row] for row in grid.tolist()]
    return {
        "run": panel["run"],
        "name": panel["name"],
        "said": panel.get("said", ""),
        "axis": [_short(value) for value in panel["axis"]],
        "values": values,
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


@kinds.register("surface", words="surfaces")
def surface_figure(chart: dict[str, Any]) -> Figure:
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import INK, brief, literal, rows_and_columns

    deep = LinearSegmentedColormap.from_list("deep", list(reversed(palette.HEAT)))

    panels, low, high = chart["panels"], chart["low"], chart["high"]
    rows, columns = rows_and_columns(len(panels))
    figure = Figure(figsize=(2.3 * columns + 0.9, 4.5 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns)
    # the same spacing as that of the levels
    norm = FuncNorm((lambda v: np.sqrt(np.clip((v - low) / (high - low), 0, 1)), lambda s: low + s**2 * (high - low)),
                    vmin=low, vmax=high)  # fmt: skip
    levels = sorted({low, *chart["levels"], high})
    flat = []
    names = brief([panel["name"] for panel in panels])
    for place, (name, panel) in enumerate(zip(names, panels, strict=True)):
        row, column = divmod(place, columns)
        axis = np.array(panel["axis"])
        values = np.minimum(np.array(panel["values"], dtype=float), high)
        values = np.where(np.isnan(values), high, values)
        above = figure.add_subplot(grid[2 * row, column])
        drawn = above.contourf(axis, axis, values.T, levels=levels, cmap=deep, norm=norm, extend="max")
        above.contour(axis, axis, values.T, levels=levels, colors=INK, linewidths=0.4)
        above.plot(0, 0, "+", color=INK, markersize=7)
        above.set_title(literal(name + (f"\n{panel['said']}" if panel["said"] else "")), fontsize=8)
        above.set(aspect="equal", xlabel=chart["x"])
        above.grid(False)
        if column == 0:
            above.set_ylabel(chart["y"])
        flat.append(above)
        below: Any = figure.add_subplot(grid[2 * row + 1, column], projection="3d")
        x, y = np.meshgrid(axis, axis, indexing="ij")
        below.plot_surface(x, y, values, cmap=deep, norm=norm, rstride=1, cstride=1, linewidth=0.15, edgecolor=INK)
        below.set_zlim(low, high)
        below.view_init(elev=32, azim=-52)
        below.tick_params(labelsize=6, pad=-2)
        below.set_box_aspect(None, zoom=0.92)
    figure.colorbar(drawn, ax=flat, label=chart["z"], shrink=0.8, format="%.3g")
    return figure
