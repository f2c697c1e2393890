"""The column that the headlines speak of: one threat and attack, on the same images, for as many runs as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.report import wording
from hardtack.results import REPORTED, Curve, Result, Row, Run, Table, curves, source_of

WORST_CASE, ROBUST = "worst_case_accuracy", "robust_accuracy"
BROKEN, UNHARMED = 0.05, 0.95  # where every run is beyond one of these, the attack tells nothing about them


@dataclass(frozen=True, kw_only=True)
class HeadlineColumn:
    """One robust number of several runs that may be compared, the best first."""

    rows: list[Row]
    threat: str | None
    swept: bool = False

    @property
    def results(self) -> list[Result]:
        return [row.cells[self.threat] for row in self.rows]

    @property
    def first(self) -> Result:
        return self.results[0]

    @property
    def values(self) -> list[float]:
        return [result.value for result in self.results]

    @property
    def tied(self) -> list[Row]:
        """The first row, and those whose number is the same."""
        return [row for row, value in zip(self.rows, self.values, strict=True) if value == self.values[0]]


def telling_column(tables: Sequence[Table], runs: Sequence[Run]) -> HeadlineColumn | None:
    """Of the columns measured for most runs the most telling; None where nothing was attacked.

    What was measured here comes before what was reported, and the strongest attack stands for its threat. A column
    tells something unless all runs are below 5 % or above 95 % in it; of those that do, the worst case over several
    threats comes first and radii of a sweep last; then AutoAttack comes before single attacks, and the larger spread
    between the runs decides, or the number nearest to one half.
    """
    candidates = [*_of_tables(tables), *_of_sweeps(runs)]
    candidates = [column for column in candidates if source_of(column.first) != REPORTED] or candidates
    strongest: dict[tuple[Any, ...], HeadlineColumn] = {}
    for column in candidates:
        first = column.first
        about = (first.data, first.n, first.data_description, wording.reach_of(first), len(column.rows))
        current = strongest.get(about)
        if current is None or _mean(column) < _mean(current):
            strongest[about] = column
    return max(strongest.values(), key=_rank, default=None)


def _rank(column: HeadlineColumn) -> tuple[float, ...]:
    best, worst = max(column.values), min(column.values)
    telling = best > BROKEN and worst < UNHARMED
    worst_case = column.first.metric == WORST_CASE
    return (
        len({row.run for row in column.rows}),
        telling,
        worst_case,
        not column.swept,
        column.first.suite == "autoattack",
        best - worst,
        -abs(_mean(column) - 0.5),
    )


def _mean(column: HeadlineColumn) -> float:
    return sum(column.values) / len(column.values)


def _of_tables(tables: Sequence[Table]) -> list[HeadlineColumn]:
    return [
        _column([row for row in table.rows if threat in row.cells], threat)
        for table in tables
        if table.metric in (WORST_CASE, ROBUST)
        for threat in table.threats
    ]


def swept_rows(curve: Curve) -> list[Row]:
    """A row for each radius above zero at which a sweep measured robust accuracy."""
    clean = next((point.result for point in curve.points if point.eps == 0), None)
    results = [point.result for point in curve.points if point.eps > 0 and point.result.metric == ROBUST]
    return [
        Row(run=curve.run, checkpoint=curve.checkpoint, clean=clean, cells={result.threat: result})
        for result in results
    ]


def _of_sweeps(runs: Sequence[Run]) -> list[HeadlineColumn]:
    """Every radius above zero of every sweep."""
    columns = []
    for candidates in curves(runs):
        rows: dict[str, list[Row]] = defaultdict(list)
        for row in (row for curve in candidates.curves for row in swept_rows(curve)):
            rows[str(next(iter(row.cells)))].append(row)
        columns += [_column(of_radius, threat, swept=True) for threat, of_radius in rows.items()]
    return columns


def _column(rows: Sequence[Row], threat: str | None, *, swept: bool = False) -> HeadlineColumn:
    """Equal numbers in the order of clean accuracy, as in the tables."""

    def place(row: Row) -> tuple[float, float]:
        return -row.cells[threat].value, -(row.clean.value if row.clean else 0.0)

    return HeadlineColumn(rows=sorted(rows, key=place), threat=threat, swept=swept)
