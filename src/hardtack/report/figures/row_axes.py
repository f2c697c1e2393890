"""Axes of figures that lie on their side, as on the page: a row for each name, lanes for the runs in each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hardtack.report.figures.sheet import WIDTH, brief, literal


def row_axes(rows: Sequence[str], lanes: int, *, height: float) -> tuple[Figure, Axes, Any]:
    """A figure with a row for each name, from the top; `lane` says how far from a row's middle a run lies."""
    figure = Figure(figsize=(WIDTH, 0.8 + len(rows) * max(0.22, height * lanes + 0.08)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yticks(range(len(rows)), [literal(name) for name in brief(rows)])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    def lane(at: int) -> float:
        return (at - (lanes - 1) / 2) * 0.75 / lanes

    return figure, axes, lane
