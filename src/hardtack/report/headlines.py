"""What the page says first: the best numbers, whether the first is truly ahead, and how many warnings there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.report import wording
from hardtack.report.headline_column import BROKEN, HeadlineColumn
from hardtack.report.remarks import Remark
from hardtack.results import REPORTED, Paired, Result, Row, Run, Table, paired, per_image, source_of, stored_verdicts

LOST, KEPT = 0.3, 0.15  # a model is called broken if it loses so much accuracy and another model keeps so much


def headlines(
    tables: Sequence[Table],
    column: HeadlineColumn | None,
    warnings: list[dict[str, Any]],
    order: Mapping[str, int],
    limits: Sequence[Remark] = (),
) -> list[dict[str, Any]]:
    """The cards: who is most robust in this column, who most accurate on clean images, and the warnings.

    `limits` is what no check can see (`remarks`): where there is any, no card says that every check passed.
    """
    cards = [] if column is None else [_robust(column, order)]
    return [*cards, *_clean(tables, column, order), _warning_headline(warnings, limits)]


def _robust(column: HeadlineColumn, order: Mapping[str, int]) -> dict[str, Any]:
    best, result = column.rows[0], column.first
    reported = wording.source(REPORTED) if source_of(result) == REPORTED else ""
    tied = _tied_with([row.run for row in column.tied[1:]])
    under = [wording.reach_of(result), wording.attack_name(result.attack, result.suite), wording.images(result)]
    title = "Most robust" if _several(row.run for row in column.rows) and result.value > BROKEN else "Robust accuracy"
    return _headline(title, best.run, order, result, [*under, reported, tied])


def _clean(tables: Sequence[Table], column: HeadlineColumn | None, order: Mapping[str, int]) -> list[dict[str, Any]]:
    """Only what was measured on the same images compares: those most runs have seen, or else the attacked ones."""
    tables = [table for table in tables if table.source != REPORTED] or tables
    groups: dict[tuple[Any, ...], list[tuple[str, Result]]] = defaultdict(list)
    for row in (row for table in tables for row in table.rows):
        own = row.cells.get(None)
        for result in (row.clean, own if own and own.metric == "clean_accuracy" else None):
            if result is not None:
                groups[_images(result)].append((row.run, result))
    if not groups:
        return []
    attacked = None if column is None else _images(column.first)
    candidates = groups[max(groups, key=lambda about: (len({name for name, _ in groups[about]}), about == attacked))]
    rank = [] if column is None else [row.run for row in column.rows]  # of equals the most robust
    name, result = max(
        candidates, key=lambda pair: (pair[1].value, -rank.index(pair[0]) if pair[0] in rank else -len(rank))
    )
    tied = dict.fromkeys(other for other, entry in candidates if entry.value == result.value and other != name)
    title = "Most accurate on clean images" if _several(other for other, _ in candidates) else "Clean accuracy"
    return [_headline(title, name, order, result, [wording.images(result), _tied_with(list(tied))])]


def _images(result: Result) -> tuple[Any, ...]:
    return result.data, result.n, result.data_description, source_of(result) == REPORTED


def _several(names: Iterable[str]) -> bool:
    return len(set(names)) > 1


def _tied_with(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"tied with {wording.listed(names) if len(names) <= 2 else f'{len(names)} others'}"


def _warning_headline(warnings: list[dict[str, Any]], limits: Sequence[Remark]) -> dict[str, Any]:
    red = sum(warning["level"] == "red" for warning in warnings)
    limited = [remark.short for remark in limits[:2]]
    said = [f"{red} red, {len(warnings) - red} yellow"] if warnings else []
    return {
        "title": "Warnings",
        "value": str(len(warnings)) if warnings else "none",
        "interval": f"{'' if said else 'but '}{', '.join([*said, *limited])}"
        if said or limited
        else "every check passed",
        "name": "",
        "kind": "bad" if red else "careful" if warnings or limited else "good",
    }


def _headline(title: str, name: str, order: Mapping[str, int], result: Result, under: Sequence[str]) -> dict[str, Any]:
    return {
        "title": title,
        "value": wording.number(result.value, result.metric),
        "interval": wording.interval(result),
        "name": name,
        "run": order[name],
        "under": " · ".join(part for part in under if part),
        "kind": "",
    }


def verdict(column: HeadlineColumn | None, runs: Sequence[Run]) -> str:
    """The story of the column: which models the attack breaks, and whether the first is truly ahead of the second.

    The first two are compared by the exact paired test on their verdicts.
    """
    if column is None or len(column.rows) < 2 or source_of(column.first) == REPORTED:
        return ""
    attack = wording.attack_name(column.first.attack, column.first.suite)
    under = f"Under {' at '.join(part for part in (attack, wording.reach_of(column.first)) if part)}"
    broken, test = _broken(column), _paired(column, runs)
    if not broken:
        compared = _compared(column, test)
        return f"{under}, {compared}." if compared else ""
    story = f"{under}, {_fall(broken, column)}, while {column.rows[0].run} keeps {wording.number(column.values[0])}"
    if column.rows[1] not in broken:
        compared = _compared(column, test)
        return f"{story}; {compared}." if compared else f"{story}."
    return f"{story}, {_points(test)} more {_about(test)}." if test else f"{story}."


def _broken(column: HeadlineColumn) -> list[Row]:
    """Models that are accurate on clean images and nearly always wrong under an attack that others withstand."""
    rows = [
        row
        for row, value in zip(column.rows, column.values, strict=True)
        if value <= BROKEN and row.clean is not None and row.clean.value - value >= LOST
    ]
    return rows if rows and column.values[0] >= KEPT else []


def _fall(broken: Sequence[Row], column: HeadlineColumn) -> str:
    """`standard falls from 97.2% to 0.0%`."""
    if len(broken) == 1 and broken[0].clean is not None:
        value = broken[0].cells[column.threat].value
        return f"{broken[0].run} falls from {wording.number(broken[0].clean.value)} to {wording.number(value)}"
    who = wording.listed([row.run for row in broken]) if len(broken) <= 3 else f"{len(broken)} runs"
    most = max(row.cells[column.threat].value for row in broken)
    return f"{who} fall to {wording.number(most)}{' or below' if most else ''}"


def _paired(column: HeadlineColumn, runs: Sequence[Run]) -> Paired | None:
    """The paired test of the first two rows; None where their verdicts are not of the same images."""
    folders = {run.label: run.path for run in runs}
    robust = [_robust_images(row, column.threat, folders) for row in column.rows[:2]]
    if robust[0] is None or robust[1] is None or set(robust[0]) != set(robust[1]):
        return None
    images = sorted(robust[0])
    return paired([robust[0][image] for image in images], [robust[1][image] for image in images])


def _compared(column: HeadlineColumn, test: Paired | None) -> str:
    """How the first compares with the second; empty where that cannot be tested."""
    if len(column.tied) > 1:
        return _tie(column)
    if test is None:
        return ""
    first, second = (row.run for row in column.rows[:2])
    if test.p_value < 0.05:
        return f"{first} is ahead of {second} by {_points(test)} {_about(test)}"
    return f"{first} and {second} do not differ significantly: {_points(test)} {_about(test)}"


def _points(test: Paired) -> str:
    return f"{abs(100 * test.difference):.1f} points"


def _about(test: Paired) -> str:
    return f"on the same {wording.image_count(test.n)} (exact paired test, {wording.p_value(test.p_value)})"


def _tie(column: HeadlineColumn) -> str:
    """Equal numbers: what puts the first of them first, if anything does."""
    names = [row.run for row in column.tied]
    who = wording.listed(names) if len(names) <= 4 else f"{len(names)} runs"
    first, second = column.rows[0].clean, column.rows[1].clean
    ahead = f"; {names[0]} comes first by its clean accuracy" if first and second and first.value > second.value else ""
    on = f"on the same {wording.image_count(column.first.n)}"
    return f"{who} are tied at {wording.number(column.values[0])} {on}{ahead}"


def _robust_images(row: Row, threat: str | None, folders: Mapping[str, Path]) -> dict[int, bool] | None:
    result = row.cells[threat]
    if not result.verdicts:
        return None
    try:
        columns = stored_verdicts(folders[row.run], result)
    except UserError:
        return None
    stood = per_image(result, columns)
    if stood is None and not any(name.startswith("robust@") for name in columns):
        stood = columns.get("robust")  # a single threat
    if stood is None or "index" not in columns or len(columns["index"]) != result.n:
        return None
    return dict(zip(columns["index"].tolist(), (bool(entry) for entry in stood), strict=True))
