"""Pictures in a grid: kind `gallery`. A reader switches between views, and hides the columns or rows of a run.

    gallery_chart(
        id="attention-maps-0", file="digits 8", title="…", caption="…",
        views=[{
            "name": "block 3", "file": "block 3",            # of the switch, and in the name of a figure's file
            "caption": "…",                                  # instead of the chart's, if there is more to say
            "columns": [column("clean", run=0), column("occluded", run=0)],
            "rows": [row("image 7, cat", [picture(pixels), picture(other, "cosine 0.91")])],
        }],
    )

A `run` (its place among all) belongs to a column or to a row, where either is of one run. A cell is a picture, H×W×3 or
H×W as uint8, with a few words below it, or None. Pictures are drawn at one size, whatever theirs is.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from PIL import Image

from hardtack.base.registry import kinds
from hardtack.report import palette
from hardtack.report.attack_examples import data_uri
from hardtack.report.kinds.chart import numbers as number_table
from hardtack.report.kinds.chart import switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
TILE, NAMES = 1.05, 0.95  # inches: the largest size of a picture in a figure, and the room for names at the left
USUAL = 7.5  # points; narrow columns have smaller letters, so that their longest word fits
LARGEST = 224  # pixels a side: larger pictures are made smaller for the page
COLD_TO_HOT = ((0.0, (24, 15, 60)), (0.35, (140, 41, 99)), (0.65, (229, 92, 48)), (0.85, (251, 180, 60)),
               (1.0, (252, 253, 191)))  # fmt: skip


def gallery_chart(
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
    """`label` stands before the switch. Without `numbers` the words below the pictures are the table."""
    return {
        "id": id,
        "kind": "gallery",
        "file": file,
        "title": title,
        "caption": caption,
        "views": list(views),
        "choose": switch(label, views, chosen),
        "numbers": list(numbers) if numbers is not None else _said(views),
    }


def column(name: str, run: int | None = None) -> dict[str, Any]:
    return {"name": name} | ({} if run is None else {"run": run})


def row(name: str, cells: Sequence[dict[str, Any] | None], run: int | None = None) -> dict[str, Any]:
    return {"name": name, "cells": list(cells)} | ({} if run is None else {"run": run})


def picture(pixels: np.ndarray, text: str = "", about: str = "") -> dict[str, Any]:
    """`text` stands below it in one short line; `about` is read with it when it is pointed at."""
    pixels = np.asarray(pixels)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ValueError(f"a picture is H×W or H×W×3 of uint8, found {pixels.dtype} {pixels.shape}")
    pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=-1)
    return {"source": data_uri(_small(pixels)), "text": text} | ({"about": about} if about else {})


def heat_over(image: np.ndarray, heat: np.ndarray, *, strength: float = 0.6) -> np.ndarray:
    """A map rows×columns, 0 to 1, laid over an image H×W×3 (uint8) as colour, smooth between the patches."""
    height, width = image.shape[:2]
    scaled = np.clip(np.asarray(heat, dtype=np.float32), 0, 1)
    spread = np.asarray(Image.fromarray(scaled).resize((width, height), Image.Resampling.BILINEAR))
    grey = np.asarray(image, dtype=float).mean(axis=-1, keepdims=True)
    return np.round((1 - strength) * grey + strength * heat_colours(spread)).astype(np.uint8)


def heat_colours(values: np.ndarray) -> np.ndarray:
    """0 to 1 as colours from dark to bright: one more axis, of red, green and blue."""
    places, colours = [place for place, _ in COLD_TO_HOT], np.array([colour for _, colour in COLD_TO_HOT], dtype=float)
    return np.stack([np.interp(values, places, colours[:, channel]) for channel in range(3)], axis=-1)


def pictured(all_: Sequence[T], most: int) -> tuple[Sequence[T], str]:
    """The runs of which there are pictures, and words where that is not all: pictures make a page heavy."""
    return all_[:most], f"pictures of the first {most} of {len(all_)} runs" if len(all_) > most else ""


def shown_runs(view: dict[str, Any]) -> dict[str, Any]:
    """The view as far as paper has room for it: without what belongs to runs that have no colour."""

    def kept(entry: dict[str, Any]) -> bool:
        return entry.get("run", 0) < len(palette.COLOURS)

    places = [place for place, entry in enumerate(view["columns"]) if kept(entry)]
    rows = [{**entry, "cells": [entry["cells"][place] for place in places]} for entry in view["rows"] if kept(entry)]
    return {**view, "columns": [view["columns"][place] for place in places], "rows": rows}


def _small(pixels: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[:2]
    if max(height, width) <= LARGEST:
        return pixels
    scale = LARGEST / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    pixels = pixels.repeat(3, axis=2) if pixels.shape[2:] == (1,) else pixels  # grey
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))


def _said(views: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stands below the pictures, for those who read tables."""
    tables = []
    for view in views:
        if any(cell and cell["text"] for entry in view["rows"] for cell in entry["cells"]):
            rows = [
                [entry["name"], *(cell["text"] if cell else "—" for cell in entry["cells"])] for entry in view["rows"]
            ]
            tables.append(number_table(["", *(entry["name"] for entry in view["columns"])], rows, view["name"]))
    return tables


@kinds.register("gallery", words="pictures")
def gallery_figure(chart: dict[str, Any], view: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    from hardtack.report.figures.sheet import INK, WIDTH, literal

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
    from hardtack.report.figures.sheet import literal

    return literal("\n".join(textwrap.wrap(text, width=_fits(width, size))))
