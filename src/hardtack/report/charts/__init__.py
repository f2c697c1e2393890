"""What the charts draw, as plain values: the page's script and the figures for papers draw the same ones.

A file registers the charts of one suite or analysis, with the section of the page that they stand in:

    @charts.register("landscape", section=Section(id="landscape", short="Landscape", title="Loss around the weights"))
    def landscape_charts(runs: Sequence[Run]) -> list[Chart]: ...

The function returns a chart for every set of runs that can be compared, and none where there is no data. `section` is a
`Section`, or the name of another entry whose section the charts join. A chart is a dict with `id`, `kind` (see
`hardtack.report.kinds`), `title`, `caption`, `choose` (what the reader can switch, or None) and `numbers` (the tables
behind it), and what its kind draws. Charts of suites are files of this folder, those of an analysis are `chart.py` in
the analysis' folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.registry import Entry, charts
from hardtack.report.charts.section import Section
from hardtack.results import Run

__all__ = ["Chart", "Section", "names", "runs_in", "sections"]

Chart = dict[str, Any]
REQUIRED = ("id", "kind", "title", "caption", "choose", "numbers")


def sections(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The page's sections of charts in reading order; one without data is left out."""
    entries = {entry.name: entry for entry in charts.entries()}
    placed = [(_section_of(entry, entries), entry) for entry in entries.values()]
    # a chart that joins the section of another follows it
    placed.sort(key=lambda pair: (pair[0].order, pair[0].id, isinstance(pair[1].presets["section"], str)))
    drawn: dict[str, tuple[Section, list[Chart]]] = {}
    entries_of: dict[str, dict[str, list[str]]] = {}
    for section, entry in placed:
        entry_charts = _drawn(entry, runs)
        drawn.setdefault(section.id, (section, []))[1].extend(entry_charts)
        entries_of.setdefault(section.id, {})[entry.name] = [chart["id"] for chart in entry_charts]
    _check_ids([chart for _, section_charts in drawn.values() for chart in section_charts])
    return [
        {
            "id": section.id,
            "short": section.short,
            "title": section.title,
            "charts": section_charts,
            "layout": section.layout,
            "runs": runs_in(section_charts),
            "entries": entries_of[section.id],  # ids of the charts of each entry
        }
        for section, section_charts in drawn.values()
        if section_charts
    ]


def names() -> list[str]:
    """Names of all sections and of all entries, which charts can be chosen by."""
    entries = {entry.name: entry for entry in charts.entries()}
    return sorted({*entries, *(_section_of(entry, entries).id for entry in entries.values())})


def runs_in(charts: Sequence[Chart]) -> list[int]:
    """The numbers of the runs that any of these charts shows."""
    numbers: set[int] = set()
    for chart in charts:
        for part in [chart, *chart.get("views", [])]:
            entries = [
                part,
                *(entry for key in ("series", "bars", "panels", "columns", "rows") for entry in part.get(key, [])),
            ]
            numbers |= {entry["run"] for entry in entries if isinstance(entry, dict) and entry.get("run") is not None}
    return sorted(numbers)


def _section_of(entry: Entry, entries: dict[str, Entry]) -> Section:
    section = entry.presets.get("section")
    if isinstance(section, str) and section in entries:
        section = entries[section].presets.get("section")
    if not isinstance(section, Section):
        raise UserError(
            f"the chart '{entry.name}' is registered without a section: give section=Section(id=…, short=…, title=…), "
            "or the name of another chart whose section it joins"
        )
    return section


def _drawn(entry: Entry, runs: Sequence[Run]) -> list[Chart]:
    drawn_charts: list[Chart] = entry.make(runs)
    for chart in drawn_charts:
        missing = [key for key in REQUIRED if key not in chart]
        if missing:
            raise UserError(f"a chart of '{entry.name}' has no '{missing[0]}'; it needs {', '.join(REQUIRED)}")
    return drawn_charts


def _check_ids(drawn: Sequence[Chart]) -> None:
    """The page finds a chart's data by its id."""
    ids = [chart["id"] for chart in drawn]
    repeated = next((id for id in ids if ids.count(id) > 1), None)
    if repeated is not None:
        raise UserError(f"two charts have the id '{repeated}'; give one of them another id")
