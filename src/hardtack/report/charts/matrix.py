"""A matrix of shares with intervals, as a heat map without means; the reader switches between several of one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.report import wording
from hardtack.report.charts.subjects import numbers, switch

Triple = tuple[float | None, float | None, float | None]
Cells = dict[tuple[str, str], Triple]  # (row, column): value, low, high


def matrix_chart(
    *, x: str, y: str, views: Sequence[tuple[str, Mapping[tuple[str, str], Triple]]], label: str = "Show", **about: Any
) -> dict[str, Any]:
    """`views` are names and cells; `x` and `y` say what columns and rows are."""
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


def _view(name: str, cells: Mapping[tuple[str, str], Triple]) -> dict[str, Any]:
    rows, columns = (list(dict.fromkeys(key[side] for key in cells)) for side in (0, 1))
    return {
        "name": name,
        "file": name.partition(" (")[0],
        "rows": rows,
        "columns": columns,
        "cells": [[list(cells[row, column]) if (row, column) in cells else None for column in columns] for row in rows],
    }
