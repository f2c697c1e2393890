"""Results side by side, but only where that is fair: tables of comparable numbers, and curves over eps.

Plain values, from which the page, the card and the figures are all drawn.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.errors import UserError
from hardtack.results.record import Result, same_table
from hardtack.results.runs import Run, parse_threat

CLEAN = "clean_accuracy"
ONE_VIEW = "corrupted_accuracy"  # of one type and severity: cells of a heat map, not columns of a table
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
    """A metric of one run against eps, ascending; starts at the clean accuracy where that was measured."""

    run: str
    checkpoint: str | None
    points: list[Point]


@dataclass(frozen=True, kw_only=True)
class CurveSet:
    """Curves that may share one chart."""

    norm: str
    metric: str
    data: str
    n: int
    attack: str | None
    protocol: str
    curves: list[Curve]


def leaderboard(runs: Sequence[Run]) -> list[Table]:
    """Tables of comparable results, the fullest first; rows by their first column, then clean accuracy, best first.

    Sweeps are curves and appear in `curves`. Clean accuracies stand beside the attacked ones of the same
    checkpoint on the same images; those without any get a table of their own.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Row]] = defaultdict(dict)
    shown: set[tuple[Any, ...]] = set()
    for run in runs:
        for result in _oldest_first(run.results):
            if result.metric in (CLEAN, ONE_VIEW) or result.suite in SWEEPS:
                continue
            rows = groups[same_table(result)]
            clean = _clean_beside(result, run.results)
            key = _row_key(run, result)
            cells = {**(rows[key].cells if key in rows else {}), result.threat: result}  # the newest wins
            rows[key] = Row(run=run.label, checkpoint=result.checkpoint, clean=clean, cells=cells)
            shown.add((*key, result.data, result.n))
    tables = [_table(list(rows.values())) for rows in groups.values()]
    tables.sort(key=lambda table: (-len(table.rows), table.suite, str(table.threats[0])))
    return tables + _clean_tables(runs, shown)


def curves(runs: Sequence[Run]) -> list[CurveSet]:
    """Every eps sweep, grouped into charts whose curves were measured the same way."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Curve]] = defaultdict(dict)
    heads: dict[tuple[Any, ...], Result] = {}
    for run in runs:
        sweeps: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
        for result in _oldest_first(run.results):
            if result.suite in SWEEPS and result.metric != CLEAN and result.threat:
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
                run=run.label, checkpoint=first.checkpoint, points=_from_clean(points, run.results)
            )
    return [_curve_set(key[0], heads[key], list(found.values())) for key, found in groups.items()]


def distinct_flags(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Every different flag on these results, red before yellow."""
    found = {json.dumps(flag, sort_keys=True): flag for result in results for flag in result.flags}
    return sorted(found.values(), key=lambda flag: (flag["level"] != "red", flag["code"]))


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
    ]
    own = [other for other in same if other.evaluation == result.evaluation]
    found = own or same
    return found[-1] if found else None


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
        source=str(first.extra.get("source", "")),
        threats=threats,
        rows=sorted(rows, key=lambda row: _rank(row, threats[0])),
    )


def _rank(row: Row, threat: str | None) -> tuple[bool, float, float, str]:
    result = row.cells.get(threat)
    higher_is_better = result is None or not result.metric.endswith(("error", "loss", "_rate"))
    value = 0.0 if result is None else result.value
    clean = row.clean.value if row.clean else 0.0
    return result is None, -value if higher_is_better else value, -clean, row.run


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
            if result.metric != CLEAN:
                continue
            source = str(result.extra.get("source", ""))
            group = (result.data, result.n, result.data_description, source)
            # A clean accuracy does not depend on the attack it was measured next to.
            bare = dataclasses.replace(result, attack=None, attack_settings={}, threat=None)
            key = _row_key(run, result)
            groups[group][key] = Row(run=run.label, checkpoint=result.checkpoint, clean=None, cells={None: bare})
            if (*key, result.data, result.n) not in shown:
                missing.add(group)
    return [_table(list(rows.values())) for group, rows in groups.items() if group in missing]


# ---------------------------------------------------------------- curves


def _common(results: list[Result]) -> Result:
    """The first result with only what all of them share: step sizes may follow eps along a sweep."""
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


def _curve_set(norm: str, head: Result, found: list[Curve]) -> CurveSet:
    return CurveSet(
        norm=norm,
        metric=head.metric,
        data=head.data,
        n=head.n,
        attack=head.attack,
        protocol=head.protocol,
        curves=found,
    )
