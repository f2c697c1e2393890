"""Paper: the style of all figures, and files that are the same for the same numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hardtack.files import atomic

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e3da",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # journals refuse Type 3 fonts
    "svg.hashsalt": "hardtack",  # names inside the file that do not change from one time to the next
}
WIDTH = 5.2  # inches
INK = "#221e1a"


def literal(text: str) -> str:
    """A dollar sign would start mathematics, a leading underscore would hide a name from the legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def file_name(text: str) -> str:
    """What of a name every file system bears, and not too much of it."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]


def key(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    """A legend above the axes: names and colours."""
    patches = [Patch(color=colour, label=literal(name)) for name, colour in entries]
    widest = max((len(name) for name, _ in entries), default=1)
    columns = max(1, min(len(entries), int(WIDTH * 13) // (widest + 6)))
    figure.legend(handles=patches, loc="outside upper center", ncols=columns, fontsize=8)


def percent_axis(axes: Axes, low: float = 0.0, high: float = 1.0) -> None:
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure)
    with atomic(path) as file:
        # No creation date: the same numbers give the same file.
        metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix)
        figure.savefig(file, format=path.suffix[1:], dpi=200, metadata=metadata)
    return path
