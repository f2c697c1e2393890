"""What only one run has: a card with a row for each number, instead of tables of one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hardtack.report import wording
from hardtack.report.tables import cell_view
from hardtack.results import Result, Run, Table, distinct_flags


def split_tables(tables: Sequence[Table]) -> tuple[list[Table], dict[str, list[Table]]]:
    """The tables with rows to compare, and those of one row by their run, where a run has two or more of these."""
    alone: dict[str, list[Table]] = defaultdict(list)
    for table in tables:
        if len(table.rows) == 1:
            alone[table.rows[0].run].append(table)
    cards = {run: own for run, own in alone.items() if len(own) > 1}
    return [table for table in tables if len(table.rows) > 1 or table.rows[0].run not in cards], cards


def measures_view(tables: Sequence[Table], runs: Sequence[Run]) -> dict[str, Any]:
    """The card of one run: each number with its threat, how it was measured, and the clean accuracy beside it."""
    first = tables[0].rows[0]
    number = next(place for place, run in enumerate(runs) if run.label == first.run)
    several = len({table.rows[0].checkpoint for table in tables}) > 1
    rows = []
    for table in tables:
        (row,) = table.rows
        for threat in table.threats:
            result = row.cells[threat]
            rows.append(
                {
                    "name": wording.metric_name(result.metric),
                    "reach": wording.reach_of(result),
                    "how": how_measured(table, result),
                    "checkpoint": row.checkpoint if several else "",
                    "cell": cell_view(result),
                    "clean": None if row.clean is None else cell_view(row.clean),
                    "flags": distinct_flags([result, *([row.clean] if row.clean else [])]),
                }
            )
    architectures = [wording.architecture(result) for table in tables for result in table.rows[0].cells.values()]
    return {
        "run": number,
        "name": first.run,
        "architecture": next(filter(None, architectures), ""),
        "has_clean": any(row["clean"] for row in rows),
        "has_flags": any(row["flags"] for row in rows),
        "rows": rows,
    }


def how_measured(table: Table, result: Result) -> str:
    """The attack, the protocol, the images and where they came from, in one line."""
    images = wording.image_count(table.n) if table.n else ""
    attack = "" if result.metric == "clean_accuracy" else table.attack or table.suite
    parts = [attack, table.protocol, table.data, images, wording.source(table.source)]
    return " · ".join(dict.fromkeys(part for part in (*parts, *wording.making(result.attack_settings)) if part))
