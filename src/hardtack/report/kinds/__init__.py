"""Kinds of chart: one file for each, with the data it takes, its figure for papers and its script for the page.

    @kinds.register("rings", words="rings by class", script=SCRIPT)
    def rings_figure(chart: Chart, view: View) -> Figure: ...

The function draws a chart of this kind with matplotlib (imported inside the function: only figures need it). It is
called with the chart; where the chart has `views`, once for each, with the chart and the view. `words` are read aloud
in place of the drawing. The script enters a function in the table `kinds` under the same name:

    kinds.rings = (chart, { plot, width, hidden, chosen }) => { … };

It draws an SVG into `plot`, `width` pixels wide, without the runs in the set `hidden`, and returns null if no run is
left, else `{ svg, width, height, count, columns, near, read }`: `count` values can be read, `columns` of them in a row;
`near(x, y)` is the number of the value nearest to the pointer; `read(number)` is `{ x, y, title, lines, mark }`, with
lines of `{ run, name, value, range }`. `chosen` is the view that is shown. The functions of `templates/scripts` are at
hand (`element`, `label`, `colour`, `ticks`, `rowFrame`, …). Without `script`, it is the file NAME.js beside the file
that registers the kind.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from hardtack.base.errors import UserError
from hardtack.base.registry import kinds
from hardtack.report.kinds.chart import Chart, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(chart: Chart, view: View | None = None) -> Figure:
    """A chart (or one of its views) for paper."""
    draw = kinds.get(chart["kind"]).make
    drawn: Figure = draw(chart) if view is None else draw(chart, view)
    return drawn


def words(kind: str) -> str:
    """What charts of this kind are called where they cannot be seen."""
    return str(kinds.get(kind).presets.get("words") or kind.replace("_", " "))


def script(kind: str) -> str:
    """The JavaScript that draws charts of this kind, in a block of its own: its names meet no others."""
    entry = kinds.get(kind)
    text = entry.presets.get("script")
    if text is None:
        path = Path(inspect.getfile(entry.make)).with_name(f"{kind}.js")
        if not path.is_file():
            raise UserError(f"the kind of chart '{kind}' has no script: register it with script=…, or write {path}")
        text = path.read_text(encoding="utf-8")
    if "</script" in text.lower():
        raise UserError(f"the script of the kind of chart '{kind}' contains '</script', which would end it on the page")
    return f"{{\n{text}\n}}"
