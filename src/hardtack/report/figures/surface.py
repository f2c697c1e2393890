"""Surfaces over a square: contours above, the same in 3-D below, all on one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import FuncNorm, LinearSegmentedColormap
from matplotlib.figure import Figure

from hardtack.report import palette
from hardtack.report.figures.sheet import INK, brief, literal, rows_and_columns

_DEEP = LinearSegmentedColormap.from_list("deep", list(reversed(palette.HEAT)))


def surface_figure(chart: dict[str, Any]) -> Figure:
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
        drawn = above.contourf(axis, axis, values.T, levels=levels, cmap=_DEEP, norm=norm, extend="max")
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
        below.plot_surface(x, y, values, cmap=_DEEP, norm=norm, rstride=1, cstride=1, linewidth=0.15, edgecolor=INK)
        below.set_zlim(low, high)
        below.view_init(elev=32, azim=-52)
        below.tick_params(labelsize=6, pad=-2)
        below.set_box_aspect(None, zoom=0.92)
    figure.colorbar(drawn, ax=flat, label=chart["z"], shrink=0.8, format="%.3g")
    return figure
