"""Tables of comparable results, and curves over eps. Only results that were measured in the same way share a table.

These are plain values, from which the page, the card and the figures are drawn.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.base.errors import UserError
from hardtack.results.metrics import find_metric, lower_is_better
from hardtack.results.record import ANALYSIS, PROTOCOL, REPORTED, Result, comparable, same_table
from hardtack.results.runs import Run
from hardtack.results.threat_text import parse_threat

CLEAN = "clean_accuracy"
ONE_VIEW = "corrupted_accuracy"
AREA = "robustness_area"
SWEEPS = ("sweep", "curve")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One checkpoint of one run: its clean accuracy, and one result per column of its table."""

    run: str
    checkpoint: str | None
    clean: Result | None
    cells: dict[str | None, Result]

    @property
    def flags(self) -> list[dict[str, Any]]:
        """The distinct warnings on any number of this row, red first."""
        results = [*self.cells.values(), *([self.clean] if self.clean else [])]
        return distinct_flags(results)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows whose numbers may be compared; `threats` are the columns, most rows first."""

    metric: str
    suite: str
    data: str
    n: int
    attack: str | None
    protocol: str
    source: str
    threats: list[str | None]
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class Point:
    eps: float
    result: Result


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric of one run against eps, in ascending order. It starts with the clean accuracy if that was measured."""

    run: str
    checkpoint: str | None
    points: list[Point]
    area: Result | None = None  # the mean over all radii, if it was measured


@dataclass(frozen=True, kw_only=True)
class CurveSet:
    """Comparable curves, which share one chart."""

    norm: str
    metric: str
    data: str
    n: int
    attack: str | None
    protocol: str
    curves: list[Curve]


@dataclass(frozen=True, kw_only=True)
class ProtocolRow:
    """The results of one checkpoint of one run, by column. A column that could not be measured is absent."""

    run: str
    checkpoint: str | None
    cells: dict[str, Result]


@dataclass(frozen=True, kw_only=True)
class ProtocolTable:
    """The table of a protocol: `columns` in the order of the protocol, rows in the order of the runs."""

    protocol: str
    data: str
    n: int
    sources: list[str]
    columns: list[str]
    rows: list[ProtocolRow]


def leaderboard(runs: Sequence[Run]) -> list[Table]:
    """Tables of comparable results in the order of their metrics, the fullest first, those only reported last.

    Rows are sorted by their first column, then by clean accuracy, best first. Sweeps are in `curves`, protocols in
    `protocol_tables`. A clean accuracy is shown in the row of the same checkpoint on the same images; clean accuracies
    without attacked ones have their own table.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Row]] = defaultdict(dict)
    shown: set[tuple[Any, ...]] = set()
    for run in runs:
        for result in _oldest_first(run.results):
            if result.metric == CLEAN or find_metric(result.metric).charted:
                continue
            if result.suite in (*SWEEPS, PROTOCOL, ANALYSIS):
                continue
            rows = groups[same_table(result)]
            clean = _clean_beside(result, run.results)
            key = _row_key(run, result)
            cells = {**(rows[key].cells if key in rows else {}), result.threat: result}  # the newest result is used
            rows[key] = Row(run=run.label, checkpoint=result.checkpoint, clean=clean, cells=cells)
            shown.add((*key, result.data, result.n, result.data_description))
    tables = [_table(list(rows.values())) for rows in groups.values()]
    tables.sort(key=_table_order)
    return tables + _clean_tables(runs, shown)


def protocol_tables(runs: Sequence[Run]) -> list[ProtocolTable]:
    """One table per protocol, version and set of images. Rows share a table if all of their columns are comparable."""
    tables: dict[str, list[dict[tuple[Any, ...], ProtocolRow]]] = defaultdict(list)
    for run in runs:
        by_row: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
        for result in _oldest_first(run.results):
            if result.suite == PROTOCOL:
                by_row[result.protocol, result.evaluation, _row_key(run, result)].append(result)
        for (protocol, _, key), results in by_row.items():
            cells = {str(result.extra.get("column", result.metric)): result for result in results}
            table = next((table for table in tables[protocol] if _fits(cells, table.values())), None)
            if table is None:
                tables[protocol].append(table := {})
            older = table[key].cells if key in table else {}
            table[key] = ProtocolRow(run=run.label, checkpoint=results[0].checkpoint, cells={**older, **cells})
    return [_protocol_table(list(rows.values())) for name in sorted(tables) for rows in tables[name]]


def _fits(cells: dict[str, Result], rows: Iterable[ProtocolRow]) -> bool:
    """Whether a row belongs to a table: every shared column has the same images and was measured in the same way.

    Only the precision of the search may differ, because all verdicts are confirmed in fp32.
    """

    def about(result: Result) -> tuple[Any, ...]:
        return comparable(dataclasses.replace(result, precision=""))

    present = {column: result for row in rows for column, result in row.cells.items()}
    shared = [column for column in cells if column in present]
    return bool(shared) and all(about(cells[column]) == about(present[column]) for column in shared)


def curves(runs: Sequence[Run]) -> list[CurveSet]:
    """Every eps sweep, grouped into charts whose curves were measured the same way."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Curve]] = defaultdict(dict)
    heads: dict[tuple[Any, ...], Result] = {}
    for run in runs:
        sweeps: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
        areas = {result.evaluation: result for result in _oldest_first(run.results) if result.metric == AREA}
        for result in _oldest_first(run.results):
            if result.suite in SWEEPS and result.metric not in (CLEAN, AREA) and result.threat:
                try:
                    norm, eps = parse_threat(result.threat)
                except UserError:
                    continue
                sweeps[result.evaluation, norm, result.metric].append(Point(eps=eps, result=result))
        for (_, norm, _), points in sweeps.items():
            head = _common([point.result for point in points])
            key = (norm, *same_table(head))
            heads[key] = head
            first = points[0].result
            groups[key][_row_key(run, first)] = Curve(
                run=run.label,
                checkpoint=first.checkpoint,
                points=_from_clean(points, run.results),
                area=areas.get(first.evaluation),
            )
    return [_curve_set(key[0], heads[key], list(members.values())) for key, members in groups.items()]


def distinct_flags(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Every different flag on these results, red before yellow."""
    flags = {json.dumps(flag, sort_keys=True): flag for result in results for flag in result.flags}
    return sorted(flags.values(), key=lambda flag: (flag["level"] != "red", flag["code"]))


def source_of(result: Result) -> str:
    """The source of a number or its images: official or regenerated files, or reported by others."""
    return str(result.extra.get("source", ""))


def _table_order(table: Table) -> tuple[Any, ...]:
    order = find_metric(table.metric).order
    return (
        math.inf if order is None else order,
        table.source == REPORTED,
        -len(table.rows),
        table.suite,
        str(table.threats[0]),
    )


def _oldest_first(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda result: result.created)


def _row_key(run: Run, result: Result) -> tuple[Any, ...]:
    return run.label, result.checkpoint, result.weights_sha256


def _clean_beside(result: Result, results: list[Result]) -> Result | None:
    """The clean accuracy of the same weights on the same images, from the same evaluation if it has one."""
    same = [
        other
        for other in _oldest_first(results)
        if other.metric == CLEAN
        and (other.checkpoint, other.weights_sha256) == (result.checkpoint, result.weights_sha256)
        and (other.data, other.n) == (result.data, result.n)
        and (source_of(other) == REPORTED) == (source_of(result) == REPORTED)
    ]
    own = [other for other in same if other.evaluation == result.evaluation]
    matches = own or same
    return matches[-1] if matches else None


def _table(rows: list[Row]) -> Table:
    counts: dict[str | None, int] = defaultdict(int)
    for row in rows:
        for threat in row.cells:
            counts[threat] += 1
    threats = sorted(counts, key=lambda threat: (-counts[threat], _threat_order(threat)))
    first = next(iter(rows[0].cells.values()))
    return Table(
        metric=first.metric,
        suite=first.suite,
        data=first.data,
        n=first.n,
        attack=first.attack,
        protocol=first.protocol,
        source=source_of(first),
        threats=threats,
        rows=sorted(rows, key=lambda row: _rank(row, threats[0])),
    )


def _rank(row: Row, threat: str | None) -> tuple[bool, float, float, str]:
    result = row.cells.get(threat)
    value = 0.0 if result is None else result.value
    clean = row.clean.value if row.clean else 0.0
    return result is None, value if result and lower_is_better(result.metric) else -value, -clean, row.run


def _threat_order(threat: str | None) -> tuple[str, float]:
    try:
        return parse_threat(threat or "")
    except UserError:
        return str(threat), 0.0


def _clean_tables(runs: Sequence[Run], shown: set[tuple[Any, ...]]) -> list[Table]:
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Row]] = defaultdict(dict)
    missing: set[tuple[Any, ...]] = set()
    for run in runs:
        for result in _oldest_first(run.results):
            if result.metric != CLEAN or result.suite == PROTOCOL:
                continue
            group = (result.data, result.n, result.data_description, source_of(result))
            # A clean accuracy does not depend on the attack it was measured next to.
            bare = dataclasses.replace(result, attack=None, attack_settings={}, threat=None)
            key = _row_key(run, result)
            groups[group][key] = Row(run=run.label, checkpoint=result.checkpoint, clean=None, cells={None: bare})
            if (*key, result.data, result.n, result.data_description) not in shown:
                missing.add(group)
    return [_table(list(rows.values())) for group, rows in groups.items() if group in missing]


def _protocol_table(rows: list[ProtocolRow]) -> ProtocolTable:
    results = {column: result for row in rows for column, result in row.cells.items()}
    columns = sorted(results, key=lambda column: (float(results[column].extra.get("place", len(results))), column))
    first = results[columns[0]]
    sources = dict.fromkeys(source_of(results[column]) for column in columns)
    return ProtocolTable(
        protocol=first.protocol,
        data=first.data,
        n=first.n,
        sources=[source for source in sources if source],
        columns=columns,
        rows=rows,
    )


# ---------------------------------------------------------------- curves


def _common(results: list[Result]) -> Result:
    """The first result, reduced to the settings that all of them share (step sizes may depend on eps in a sweep)."""
    first = results[0]
    settings = {
        key: value
        for key, value in first.attack_settings.items()
        if all(other.attack_settings.get(key) == value for other in results)
    }
    attack = first.attack if len({other.attack for other in results}) == 1 else None
    protocol = first.protocol if len({other.protocol for other in results}) == 1 else ""
    return dataclasses.replace(first, attack_settings=settings, attack=attack, protocol=protocol)


def _from_clean(points: list[Point], results: list[Result]) -> list[Point]:
    by_eps = {point.eps: point for point in points}
    clean = _clean_beside(points[0].result, results)
    if clean is not None and 0.0 not in by_eps and points[0].result.metric == "robust_accuracy":
        by_eps[0.0] = Point(eps=0.0, result=clean)
    return [by_eps[eps] for eps in sorted(by_eps)]


def _curve_set(norm: str, head: Result, curves: list[Curve]) -> CurveSet:
    return CurveSet(
        norm=norm,
        metric=head.metric,
        data=head.data,
        n=head.n,
        attack=head.attack,
        protocol=head.protocol,
        curves=curves,
    )
