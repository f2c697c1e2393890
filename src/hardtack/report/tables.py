"""Tables as the page and the card show them: titles, how they were measured, and cells in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.report import wording
from hardtack.results import ProtocolTable, Result, Run, Table, distinct_flags, is_share, lower_is_better
from hardtack.results.audit_bound import audit_of


def table_view(table: Table, runs: Sequence[Run]) -> dict[str, Any]:
    """A table's title, protocol, columns and rows in words."""
    order = {run.label: number for number, run in enumerate(runs)}
    several = len({row.run for row in table.rows}) < len(table.rows)
    has_clean = any(row.clean for row in table.rows)
    columns = [("Clean accuracy", "")] if has_clean else []
    cells = {threat: cell for row in table.rows for threat, cell in row.cells.items()}
    columns += [(wording.metric_name(table.metric), wording.reach_of(cells[threat])) for threat in table.threats]
    rows = []
    for row in table.rows:
        results = ([row.clean] if has_clean else []) + [row.cells.get(threat) for threat in table.threats]
        checkpoint = row.checkpoint if several else ""
        rows.append(
            {
                "run": order[row.run],
                "name": row.run,
                "checkpoint": checkpoint,
                "architecture": next(wording.architecture(result) for result in row.cells.values()),
                "cells": [cell_view(result) for result in results],
                "flags": row.flags,
            }
        )
    images = wording.image_count(table.n) if table.n else ""
    making = wording.making(next(iter(cells.values())).attack_settings)
    how = [table.attack or table.suite, table.protocol, table.data, images, wording.source(table.source), *making]
    return {
        "title": _table_title(table),
        "how": [part for part in dict.fromkeys(how) if part],
        "columns": columns,
        "sorted": 1 if has_clean else 0,
        "order": "ascending" if lower_is_better(table.metric) else "descending",
        "rows": rows,
    }


def protocol_view(table: ProtocolTable, runs: Sequence[Run]) -> dict[str, Any]:
    """A protocol's table: columns in the protocol's order, a dash where one could not be measured."""
    order = {run.label: number for number, run in enumerate(runs)}
    several = len({row.run for row in table.rows}) < len(table.rows)
    images = wording.image_count(table.n) if table.n else ""
    cells = [cell for row in table.rows for cell in row.cells.values()]
    making = dict.fromkeys(part for cell in cells for part in wording.making(cell.attack_settings))
    return {
        "title": table.protocol,
        "how": [part for part in (table.data, images, *map(wording.source, table.sources), *making) if part],
        "columns": [(column, "") for column in table.columns],
        "sorted": None,  # rows stand as the runs do
        "order": "none",
        "rows": [
            {
                "run": order[row.run],
                "name": row.run,
                "checkpoint": row.checkpoint if several else "",
                "architecture": next(wording.architecture(result) for result in row.cells.values()),
                "cells": [cell_view(row.cells.get(column)) for column in table.columns],
                "flags": distinct_flags(row.cells.values()),
            }
            for row in table.rows
        ],
    }


def _table_title(table: Table) -> str:
    if table.metric == "clean_accuracy":
        return f"Clean accuracy on {table.data}"
    if table.threats == [None]:  # nothing attacked: what was shown instead is said below
        return f"{wording.metric_name(table.metric)} on {table.data}"
    return f"{wording.metric_name(table.metric)}: {wording.attack_name(table.attack, table.suite)} on {table.data}"


def cell_view(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    audit, audit_line = audit_of(result.extra, result.threat)
    cell: dict[str, Any] = {
        "value": result.value,
        "text": wording.number(result.value, result.metric),
        "interval": wording.interval(result),
        "about": result.interval,
        "bar": None,
        "audit": audit,
        "audit_line": audit_line,
    }
    if is_share(result.metric) and result.low is not None and result.high is not None:
        bounds = (min(bound, 1.0) for bound in (result.low, result.high, result.value))  # mCE may be above 100 %
        cell["bar"] = [round(100 * bound, 2) for bound in bounds]
    return cell
