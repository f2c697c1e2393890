"""A matrix of shares with intervals, as a heat map without means; the reader switches between several of one shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.report import wording
from hardtack.report.charts.comparable_runs import numbers, switch

Triple = tuple[float | None, float | None, float | None]
Cells = dict[tuple[str, str], Triple]  # (row, column): value, low, high


def matrix_chart(
    *, x: str, y: str, views: Sequence[tuple[str, Mapping[tuple[str, str], Triple]]], label: str = "Show", **about: Any
) -> dict[str, Any]:
    """`views` are names and cells; `x` and `y` say what columns and rows are; colours run through `scale`."""
    made = [_view(name, cells) for name, cells in views if cells]
    return {
        "kind": "heat",
        "x": x,
        "y": y,
        "views": made,
        "choose": switch(label, made),
        "numbers": [
            numbers(
                [y, *view["columns"]],
                [
                    [name, *(wording.number(cell and cell[0]) for cell in cells)]
                    for name, cells in zip(view["rows"], view["cells"], strict=True)
                ],
                view["name"],
            )
            for view in made
        ],
        **about,
    }


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
