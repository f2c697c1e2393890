"""What the page says first: the best numbers, whether the first is truly ahead, and how many warnings there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardtack.errors import UserError
from hardtack.report import wording
from hardtack.results import REPORTED, Result, Row, Run, Table, paired, read_verdicts


def headlines(tables: list[Table], warnings: list[dict[str, Any]], order: Mapping[str, int]) -> list[dict[str, Any]]:
    cards = []
    tables = [table for table in tables if table.source != REPORTED] or tables  # what was measured here comes first
    several = len({row.run for table in tables for row in table.rows}) > 1
    worst = next((table for table in tables if table.metric == "worst_case_accuracy"), None)
    robust = worst or next((table for table in tables if table.metric == "robust_accuracy"), None)
    if robust is not None:
        threat = robust.threats[0]
        best = robust.rows[0]
        tied = [row.run for row in _tied(robust)[1:]]
        attack = wording.attack_name(robust.attack, robust.suite)
        under = [wording.reach_of(best.cells[threat]), attack, _reported(robust), _tied_with(tied)]
        title = "Most robust" if several else "Robust accuracy"
        cards.append(_headline(title, best.run, order, best.cells[threat], under))
    clean = [(row.run, row.clean) for table in tables for row in table.rows if row.clean]
    clean += [
        (row.run, row.cells[None])
        for table in tables
        if table.metric == "clean_accuracy"
        for row in table.rows
        if None in row.cells
    ]
    if clean:
        name, result = max(clean, key=lambda pair: pair[1].value)  # the first of equals: the most robust
        tied = [other for other, one in clean if (one.value, one.data, one.n) == (result.value, result.data, result.n)]
        under = [result.data, _tied_with([other for other in dict.fromkeys(tied) if other != name])]
        title = "Most accurate on clean images" if several else "Clean accuracy"
        cards.append(_headline(title, name, order, result, under))
    return [*cards, _warning_headline(warnings)]


def _reported(table: Table) -> str:
    return wording.source(REPORTED) if table.source == REPORTED else ""


def _tied(table: Table) -> list[Row]:
    """The first row, and those whose number is the same."""
    best = table.rows[0].cells[table.threats[0]].value
    return [row for row in table.rows if (cell := row.cells.get(table.threats[0])) and cell.value == best]


def _tied_with(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"tied with {wording.listed(names) if len(names) <= 2 else f'{len(names)} others'}"


def _warning_headline(warnings: list[dict[str, Any]]) -> dict[str, Any]:
    red = sum(warning["level"] == "red" for warning in warnings)
    return {
        "title": "Warnings",
        "value": str(len(warnings)) if warnings else "none",
        "interval": f"{red} red, {len(warnings) - red} yellow" if warnings else "every check passed",
        "name": "",
        "kind": "bad" if red else "careful" if warnings else "good",
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


def verdict(tables: list[Table], runs: Sequence[Run]) -> str:
    """Whether the first is truly ahead of the second, by the exact paired test on their verdicts."""
    table = next(
        (t for t in tables if t.metric == "robust_accuracy" and t.source != REPORTED and len(t.rows) > 1), None
    )
    if table is None:
        return ""
    folders = {run.label: run.path for run in runs}
    first, second = table.rows[0], table.rows[1]
    if len(tied := _tied(table)) > 1:
        return _tie(tied, table)
    robust = [_robust_images(row, table.threats[0], folders) for row in (first, second)]
    if robust[0] is None or robust[1] is None or set(robust[0]) != set(robust[1]):
        return ""
    images = sorted(robust[0])
    test = paired([robust[0][image] for image in images], [robust[1][image] for image in images])
    lead = f"{abs(100 * test.difference):.1f} points"
    p_value = "p\u00a0<\u00a00.0001" if test.p_value < 1e-4 else f"p\u00a0=\u00a0{test.p_value:.2g}"
    about = f"on the same {test.n:,} images (exact paired test, {p_value})"
    if test.p_value < 0.05:
        return f"{first.run} is ahead of {second.run} by {lead} {about}."
    return f"{first.run} and {second.run} cannot be told apart: {lead} {about}."


def _tie(rows: list[Row], table: Table) -> str:
    """Equal numbers: what puts the first of them first, if anything does."""
    names = [row.run for row in rows]
    who = wording.listed(names) if len(names) <= 4 else f"{len(names)} runs"
    value = wording.number(rows[0].cells[table.threats[0]].value)
    first, second = rows[0].clean, rows[1].clean
    ahead = f"; {names[0]} is ahead on clean images" if first and second and first.value > second.value else ""
    return f"{who} are tied at {value} on the same {table.n:,} images{ahead}."


def _robust_images(row: Row, threat: str | None, folders: Mapping[str, Path]) -> dict[int, bool] | None:
    result = row.cells.get(threat)
    if result is None or not result.verdicts:
        return None
    try:
        columns = read_verdicts(folders[row.run] / result.verdicts)
    except UserError:
        return None
    if "index" not in columns or "robust" not in columns or len(columns["index"]) != result.n:
        return None
    return dict(zip(columns["index"].tolist(), columns["robust"].tolist(), strict=True))
