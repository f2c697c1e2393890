"""Charts drawn from a study's cells: ours with intervals, the paper's numbers dashed or open beside them.

Colours tell columns or groups of rows apart, not runs, and a key above each chart says which. A plot with columns of
several units is several charts, for no axis fits them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.report import wording
from hardtack.report.kinds.bars import Bars, bars_chart
from hardtack.report.kinds.chart import Chart, KeyEntry, Look, Table, numbers
from hardtack.report.kinds.lines import Line, line, lines_chart
from hardtack.report.kinds.scatter import scatter_chart, scatter_view
from hardtack.report.study_cells import UNITS, cell_text, head
from hardtack.report.study_view import StudyCell, StudyColumn, StudyPlot, StudyRow, StudyView, cell_of

OWN_X = "x"  # the rows' own x, not a column
OURS, PAPER = "ours", "the paper"


def study_charts(study: StudyView) -> list[Chart]:
    """A chart for every plot of the study and unit of its columns; none where neither we nor the paper have numbers."""
    charts: list[Chart] = []
    for plot in study["plots"]:
        for columns in _by_unit(study, plot["y"]):
            draw = {"lines": _lines, "scatter": _scatter, "bars": _bars}[plot["kind"]]
            charts += draw(study, plot, columns, f"study-plot-{len(charts)}")
    return charts


def _by_unit(study: StudyView, names: Sequence[str]) -> list[list[StudyColumn]]:
    columns = [column for name in names for column in study["columns"] if column["name"] == name]
    units = dict.fromkeys(column["unit"] for column in columns)
    return [[column for column in columns if column["unit"] == unit] for unit in units]


# ---------------------------------------------------------------- points


@dataclass(frozen=True)
class _Point:
    """A row's place in a plot, measured here or printed in the paper."""

    row: StudyRow
    x: float
    y: float
    low: float | None = None
    high: float | None = None


def _points(study: StudyView, plot: StudyPlot, column: StudyColumn, which: str) -> list[_Point]:
    """`which` is ours or the paper's; a row without one of its two numbers has no point."""
    found = []
    for row in study["rows"]:
        cell = cell_of(row, column["name"])
        x = row["x"] if plot["x"] == OWN_X else _value(cell_of(row, plot["x"]), which)
        y = _value(cell, which)
        if x is None or y is None or (plot["log"] and x <= 0):
            continue
        found.append(_Point(row, x, y, cell["low"], cell["high"]) if which == OURS else _Point(row, x, y))
    return found


def _value(cell: StudyCell, which: str) -> float | None:
    return cell["value"] if which == OURS else cell["paper"]


def _x_label(study: StudyView, plot: StudyPlot) -> str:
    title = plot.get("x_title", "")
    return title or next((head(column) for column in study["columns"] if column["name"] == plot["x"]), plot["x"])


def _y_label(columns: Sequence[StudyColumn]) -> str:
    """The columns of one unit; only the unit where they are many, for the key above the chart names them."""
    unit = UNITS.get(columns[0]["unit"], "")
    titles = wording.listed([column["title"] for column in columns]) if len(columns) <= 2 else ""
    return f"{titles} ({unit})" if titles and unit else titles or unit


def _title(study: StudyView, plot: StudyPlot, columns: Sequence[StudyColumn]) -> str:
    names = wording.listed([column["title"] for column in columns])
    against = "" if plot["kind"] == "bars" else f" against {_x_label(study, plot)}"
    return plot["title"] or f"{names}{against}"


def _caption(study: StudyView, plot: StudyPlot) -> str:
    log = plot["log"] and plot["x"] == OWN_X and any(row["x"] is not None and row["x"] <= 0 for row in study["rows"])
    left_out = "rows with x = 0 have no place on a logarithmic axis and are only in the table" if log else ""
    return " · ".join(part for part in (f"scale {study['scale']}", "intervals: 95 %", left_out) if part)


def _key(names: Sequence[str], look: Look, *, ours: bool, paper: bool) -> list[KeyEntry]:
    """Colours by name where there are several, then what is the paper's."""
    if len(names) == 1 and paper:
        first: list[KeyEntry] = [{"name": OURS, "run": 0, "look": "solid"}] if ours else []
        return [*first, {"name": PAPER, "run": 0, "look": look}]
    entries: list[KeyEntry] = [{"name": name, "run": place, "look": "solid"} for place, name in enumerate(names)]
    return [*entries, {"name": PAPER, "run": None, "look": look}] if paper else entries


def _paper_name(name: str) -> str:
    return f"{name}, paper"


# ---------------------------------------------------------------- kinds


def _lines(study: StudyView, plot: StudyPlot, columns: Sequence[StudyColumn], id: str) -> list[Chart]:
    curves: dict[str, list[Line]] = {}  # by what the colour stands for
    for which in (OURS, PAPER):
        for column in columns:
            for group, points in _groups(study, plot, _points(study, plot, column, which)):
                titles = [column["title"] if len(columns) > 1 or not group else "", group]
                name = ", ".join(title for title in titles if title)
                curves.setdefault(name, []).append(_curve(name, points, dash=which == PAPER))
    for place, drawn in enumerate(curves.values()):
        for curve in drawn:
            curve["run"] = place
    series = [curve for drawn in curves.values() for curve in drawn]
    if not series:
        return []
    return [
        lines_chart(
            id=id,
            file=plot["title"] or plot["kind"],
            title=_title(study, plot, columns),
            caption=_caption(study, plot),
            x={"label": _x_label(study, plot), "word": _x_label(study, plot), "suffix": "", "log": plot["log"]},
            y={"label": _y_label(columns), "kind": "number"},
            series=series,
            numbers=[_numbers(study, columns)],
            key=_key(
                list(curves),
                "dashed",
                ours=any(not curve["dash"] for curve in series),
                paper=any(curve["dash"] for curve in series),
            ),
        )
    ]


def _curve(name: str, points: Sequence[_Point], *, dash: bool) -> Line:
    places = [[point.x, point.y, point.low, point.high] for point in sorted(points, key=lambda point: point.x)]
    return line(None, _paper_name(name) if dash else name, places, dash=dash, band=not dash, marks=True)


def _groups(study: StudyView, plot: StudyPlot, points: Sequence[_Point]) -> Iterator[tuple[str, list[_Point]]]:
    """A curve for each group of rows where one curve would go back and forth: where groups share an x."""
    groups: dict[str, list[_Point]] = {}
    for point in points:
        groups.setdefault(point.row["group"], []).append(point)
    own = [row["x"] for row in study["rows"] if row["x"] is not None]
    shared = len(set(own)) < len(own) if plot["x"] == OWN_X else any(len(group) > 1 for group in groups.values())
    if len({row["group"] for row in study["rows"]}) > 1 and shared:
        yield from groups.items()
    elif points:
        yield "", list(points)


def _scatter(study: StudyView, plot: StudyPlot, columns: Sequence[StudyColumn], id: str) -> list[Chart]:
    """The reader switches between columns; colours are groups of rows."""
    groups = list(dict.fromkeys(row["group"] for row in study["rows"]))
    views, drawn = [], set()
    for column in columns:
        points = [
            {**_dot(point), "run": groups.index(point.row["group"]), "open": which == PAPER}
            for which in (OURS, PAPER)
            for point in _points(study, plot, column, which)
        ]
        if points:
            drawn |= {OURS for point in points if not point["open"]} | {PAPER for point in points if point["open"]}
            x, y = _x_label(study, plot), head(column)
            views.append(scatter_view(column["title"], points, x=x, y=y, x_log=plot["log"]))
    if not views:
        return []
    names = [group or "others" for group in groups]
    return [
        scatter_chart(
            id=id,
            file=plot["title"] or plot["kind"],
            title=_title(study, plot, columns),
            caption=_caption(study, plot),
            views=views,
            label="Column",
            each="row",
            key=_key(names, "open", ours=OURS in drawn, paper=PAPER in drawn),
        )
    ]


def _dot(point: _Point) -> dict[str, Any]:
    return {"name": point.row["title"], "x": point.x, "y": point.y, "low": point.low, "high": point.high}


def _bars(study: StudyView, plot: StudyPlot, columns: Sequence[StudyColumn], id: str) -> list[Chart]:
    series: list[Bars] = []
    for place, column in enumerate(columns):
        cells = [cell_of(row, column["name"]) for row in study["rows"]]
        ours = [None if c["value"] is None else [c["value"], c["low"], c["high"]] for c in cells]
        paper = [None if c["paper"] is None else [c["paper"], None, None] for c in cells]
        if any(ours):
            series.append({"run": place, "name": column["title"], "values": ours})
        if any(paper):
            name = _paper_name(column["title"])
            series.append({"run": place, "name": name, "values": paper, "look": "open"})
    if not series:
        return []
    looks = {entry.get("look", "solid") for entry in series}
    return [
        bars_chart(
            id=id,
            file=plot["title"] or plot["kind"],
            title=_title(study, plot, columns),
            caption=_caption(study, plot),
            x=_y_label(columns),
            rows=[row["title"] for row in study["rows"]],
            series=series,
            lower=all(column["lower"] for column in columns),
            unit="number",
            in_order=True,
            numbers=[_numbers(study, columns)],
            key=_key([column["title"] for column in columns], "open", ours="solid" in looks, paper="open" in looks),
        )
    ]


def _numbers(study: StudyView, columns: Sequence[StudyColumn]) -> Table:
    heads = [name for column in columns for name in (head(column), f"{column['title']}, paper")]
    rows = []
    for row in study["rows"]:
        texts = [cell_text(cell_of(row, column["name"]), column) for column in columns]
        cells = [part for text in texts for part in (f"{text.ours} {text.interval}".rstrip(), text.paper)]
        rows.append([row["title"], *cells])
    return numbers(["Row", *heads], rows)
