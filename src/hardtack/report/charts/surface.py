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
from typing import Any

import numpy as np

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
    known = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(np.quantile(known, HIGHEST))
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
