"""Paper: the style of all figures, and files that are the same for the same numbers."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatterSciNotation

from hardtack.base.files import atomic
from hardtack.report import palette
from hardtack.report.kinds.chart import KeyEntry

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
DOTS = 160  # of a PNG, to the inch
INK = "#221e1a"
_LONG = 30  # letters of a name, and no more of it
_INSIDE = 24  # letters of a name that leave room beside it in the axes


def literal(text: str) -> str:
    """A dollar sign would start mathematics, a leading underscore would hide a name from the legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def brief(names: Sequence[str]) -> list[str]:
    """The ends of long names, as on the page: a legend must leave room for what it explains.

    Where ends are alike, beginnings and ends; where these are, too, the names themselves.
    """
    ends = [name if len(name) <= _LONG else "…" + name[1 - _LONG :] for name in names]
    both = [name if len(name) <= _LONG else f"{name[: _LONG // 2]}…{name[1 - _LONG // 2 :]}" for name in names]
    return next((short for short in (ends, both) if len(set(short)) == len(set(names))), list(names))


def rows_and_columns(panels: int) -> tuple[int, int]:
    """Of panels that stand beside each other, at most three, in rows as full as can be."""
    rows = math.ceil(panels / 3)
    return rows, math.ceil(panels / rows)


def file_name(text: str) -> str:
    """What of a name every file system bears, and not too much of it."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]


def key(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    """A legend above the axes: names and colours."""
    names = brief([name for name, _ in entries])
    patches = [Patch(color=colour, label=literal(name)) for name, (_, colour) in zip(names, entries, strict=True)]
    widest = max(map(len, names), default=1)
    columns = max(1, min(len(entries), int(WIDTH * 13) // (widest + 6)))
    figure.legend(handles=patches, loc="outside upper center", ncols=columns, fontsize=8)


def look_key(figure: Figure, entries: Sequence[KeyEntry]) -> None:
    """A legend above the axes for colours that are not those of runs: lines and dashes, dots and rings."""
    names = brief([entry["name"] for entry in entries])
    columns = max(1, min(len(entries), int(figure.get_figwidth() * 13) // (max(map(len, names), default=1) + 6)))
    figure.legend(
        handles=[_handle(entry, literal(name)) for entry, name in zip(entries, names, strict=True)],
        loc="outside upper center", ncols=columns, fontsize=8,
    )  # fmt: skip


def _handle(entry: KeyEntry, name: str) -> Line2D:
    colour = palette.colour(entry["run"])
    if entry["look"] == "dashed":
        return Line2D([], [], color=colour, linestyle="--", label=name)
    inside = "white" if entry["look"] == "open" else colour
    return Line2D([], [], linestyle="", marker="o", color=colour, markerfacecolor=inside, label=name)


def name_series(figure: Figure, axes: Axes, *, beside: bool, **look: Any) -> None:
    """A legend of the series that are named, `beside` the axes where it would lie on them. Faded ones have no name."""
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    names = brief(names)
    widest = max(map(len, names))
    if beside or widest > _INSIDE:
        figure.set_figwidth(max(6.0, figure.get_figwidth() + 0.5 + 0.075 * widest))
        figure.set_figheight(max(figure.get_figheight(), 0.4 + 0.2 * len(names)))
        figure.legend(handles, names, loc="outside right center", **look)
    else:
        axes.legend(handles, names, **look)


def percent_axis(axes: Axes, low: float = 0.0, high: float = 1.0) -> None:
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


class _PlainNumbers(LogFormatterSciNotation):
    """6 and 20 in place of 6×10⁰ and 2×10¹."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        text: str = super().__call__(x, pos)
        return f"{x:g}" if text and 1e-3 <= x < 1e5 else text


def log_axis(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_formatter(_PlainNumbers())
    axis.set_minor_formatter(_PlainNumbers(minor_thresholds=(1.2, 0.5)))


def caption(figure: Figure, text: str) -> None:
    """Below the drawing, in lines of its width: images, source, and what the signs mean."""
    if not text:
        return
    lines = textwrap.wrap(text, width=int(figure.get_figwidth() * 19), break_on_hyphens=False)
    figure.set_figheight(figure.get_figheight() + 0.05 + 0.13 * len(lines))
    figure.supxlabel(literal("\n".join(lines)), fontsize=6.5, color="#5f574e", x=0.02, ha="left", linespacing=1.25)


def save(figure: Figure, paths: Sequence[Path]) -> list[Path]:
    """Into every one of these files; laid out once."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    for path in paths:
        with atomic(path) as file:
            # No creation date: the same numbers give the same file.
            metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix)
            figure.savefig(file, format=path.suffix[1:], dpi=DOTS, metadata=metadata)
    return list(paths)
