"""Pictures in a grid, a heading above every column and a name beside every row."""

from __future__ import annotations

import base64
import io
import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from hardtack.report import palette
from hardtack.report.charts.gallery import shown_runs
from hardtack.report.figures.sheet import INK, WIDTH, literal

TILE, NAMES = 1.05, 0.95  # inches: of a picture at most, of the names at the left
USUAL = 7.5  # points; of narrow columns less, so that their longest word fits


def gallery_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    shown = shown_runs(view)
    rows, columns = shown["rows"], shown["columns"]
    names = NAMES if any(row["name"] for row in rows) else 0.0
    tile = max(0.55, min(TILE, (WIDTH - names) / len(columns)))
    texts = any(cell and cell["text"] for row in rows for cell in row["cells"])
    size = _size([column["name"] for column in columns], tile)
    heads = [_wrapped(column["name"], tile, size) for column in columns]
    top = 0.14 * max(head.count("\n") + 1 for head in heads) + 0.06
    step = tile + (0.18 if texts else 0.06)
    title = view["name"] if len(chart["views"]) > 1 else ""
    above = top + (0.24 if title else 0)
    width, height = names + tile * len(columns), above + step * len(rows)
    figure = Figure(figsize=(width, height + 0.1), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("equal")
    axes.axis("off")
    if title:
        axes.text(0, 0.02, literal(title), va="top", fontsize=9, weight="bold")
    for place, (column, head) in enumerate(zip(columns, heads, strict=True)):
        colour = palette.colour(column["run"]) if "run" in column else INK
        axes.text(names + place * tile, above - 0.04, head, va="bottom", fontsize=size, color=colour)
    for line, row in enumerate(rows):
        y = above + line * step
        colour = palette.colour(row["run"]) if "run" in row else INK
        axes.text(0, y + tile / 2, _wrapped(row["name"], names, USUAL), va="center", fontsize=USUAL, color=colour)
        for place, cell in enumerate(row["cells"]):
            if cell is None:
                continue
            x, pixels = names + place * tile, pixels_of(cell["source"])
            high, wide = (0.94 * tile * side / max(pixels.shape[:2]) for side in pixels.shape[:2])
            axes.imshow(pixels, extent=(x, x + wide, y + high, y), interpolation="nearest", aspect="auto")
            axes.text(x, y + 0.97 * tile, literal(cell["text"]), va="top", fontsize=6.5, color=INK)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("equal")
    return figure


def pixels_of(source: str) -> np.ndarray:
    """A data: address as the picture it holds."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB"))


def _fits(width: float, size: float) -> int:
    """Letters to a line."""
    return max(1, int(width * 115 / size))


def _size(names: list[str], width: float) -> float:
    longest = max(len(word) for name in names for word in name.split() or [""])
    return max(4.5, min(USUAL, USUAL * _fits(width, USUAL) / max(1, longest)))


def _wrapped(text: str, width: float, size: float) -> str:
    return literal("\n".join(textwrap.wrap(text, width=_fits(width, size))))
