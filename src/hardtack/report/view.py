"""What the page says, as plain values: the template only lays it out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hardtack.errors import UserError
from hardtack.report import charts, palette, pictures, wording
from hardtack.results import Result, Row, Run, Table, leaderboard, paired, read_verdicts

LEVEL_MEANS = {
    "red": "Do not quote this number before the cause is understood.",
    "yellow": "Read this before you quote the number.",
}


def view(runs: Sequence[Run], output: Path) -> dict[str, Any]:
    """Every section of the page for these runs; `output` is where the page will lie."""
    runs = palette.in_order(runs)
    tables = leaderboard(runs)
    warnings = _warnings(runs)
    return {
        "title": _title(runs),
        "subtitle": _subtitle(runs),
        "generated": wording.day(datetime.now(UTC).isoformat()),
        "version": version(),
        "coloured": len(palette.COLOURS),
        "solid": palette.SOLID,
        "runs": [_run(number, run, output) for number, run in enumerate(runs)],
        "headlines": _headlines(tables, warnings, {run.label: number for number, run in enumerate(runs)}),
        "verdict": _verdict(tables, runs),
        "tables": [table_view(table, runs) for table in tables],
        "curves": charts.eps_charts(runs),
        "exhibits": [_exhibit(exhibit) for exhibit in pictures.exhibits(runs)],
        "training": charts.training_charts(runs),
        "configuration": _configuration(runs),
        "configured": sum(bool(run.config) for run in runs),
        "warnings": warnings,
        "level_means": LEVEL_MEANS,
        "provenance": _provenance(runs),
        "problems": [f"{run.label}: {problem}" for run in runs for problem in run.problems],
    }


def version() -> str:
    """The installed hardtack's version; empty when it runs from a bare checkout."""
    try:
        return metadata.version("hardtack")
    except metadata.PackageNotFoundError:
        return ""


def _title(runs: Sequence[Run]) -> str:
    """A run that was never evaluated is compared with nothing."""
    evaluated = [run for run in runs if run.results]
    if len(evaluated) > 1:
        return f"{len(evaluated)} runs compared"
    return (evaluated or runs)[0].label if len(evaluated) == 1 or len(runs) == 1 else f"{len(runs)} runs"


def _subtitle(runs: Sequence[Run]) -> str:
    data = sorted({f"{result.data} ({result.n:,} images)" for run in runs for result in run.results})
    if not data:
        return "Not evaluated yet"
    measured = f"Measured on {wording.listed(data) if len(data) <= 4 else f'{len(data)} sets of images'}"
    waiting = [run.label for run in runs if not run.results]
    if not waiting:
        return measured
    return f"{measured}; not evaluated: {wording.listed(waiting) if len(waiting) <= 4 else f'{len(waiting)} more runs'}"


def _run(number: int, run: Run, output: Path) -> dict[str, Any]:
    # Relative, so that a page that is mailed around does not tell where its maker's home folder lies.
    folder = os.path.relpath(run.path.resolve(), output.resolve().parent)
    models = sorted({result.model for result in run.results if result.model})
    return {"number": number, "name": run.label, "folder": folder, "model": ", ".join(models)}


# ---------------------------------------------------------------- headlines


def _headlines(tables: list[Table], warnings: list[dict[str, Any]], order: Mapping[str, int]) -> list[dict[str, Any]]:
    cards = []
    several = len({row.run for table in tables for row in table.rows}) > 1
    worst = next((table for table in tables if table.metric == "worst_case_accuracy"), None)
    robust = worst or next((table for table in tables if table.metric == "robust_accuracy"), None)
    if robust is not None:
        threat = robust.threats[0]
        best = robust.rows[0]
        tied = [row.run for row in _tied(robust)[1:]]
        attack = wording.attack_name(robust.attack, robust.suite)
        under = [wording.reach_of(best.cells[threat]), attack, _tied_with(tied)]
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


def _verdict(tables: list[Table], runs: Sequence[Run]) -> str:
    """Whether the first is truly ahead of the second, by the exact paired test on their verdicts."""
    table = next((t for t in tables if t.metric == "robust_accuracy" and len(t.rows) > 1), None)
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


# ---------------------------------------------------------------- tables


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
                "cells": [_cell(result) for result in results],
                "flags": row.flags,
            }
        )
    how = [table.attack or table.suite, table.protocol, table.data, f"{table.n:,} images", table.source]
    return {
        "title": _table_title(table),
        "how": [part for part in dict.fromkeys(how) if part],
        "columns": columns,
        "sorted": 1 if has_clean else 0,
        "rows": rows,
    }


def _table_title(table: Table) -> str:
    if table.metric == "clean_accuracy":
        return f"Clean accuracy on {table.data}"
    if table.suite == "corruptions":  # which ones is said below
        return f"{wording.metric_name(table.metric)} on {table.data}"
    return f"{wording.metric_name(table.metric)}: {wording.attack_name(table.attack, table.suite)} on {table.data}"


def _cell(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    cell: dict[str, Any] = {
        "value": result.value,
        "text": wording.number(result.value, result.metric),
        "interval": wording.interval(result),
        "about": result.interval,
        "bar": None,
    }
    if wording.is_share(result.metric) and result.low is not None and result.high is not None:
        bounds = (min(bound, 1.0) for bound in (result.low, result.high, result.value))  # mCE may be above 100 %
        cell["bar"] = [round(100 * bound, 2) for bound in bounds]
    return cell


# ---------------------------------------------------------------- the rest


def _exhibit(exhibit: pictures.Exhibit) -> dict[str, Any]:
    reach = wording.reach(exhibit.threat, exhibit.limits)
    title = ": ".join(part for part in (wording.attack_name(exhibit.attack, ""), reach) if part)
    most = max(len(example.attempts) for example in exhibit.examples)
    return {**asdict(exhibit), "title": title or "Attack not recorded", "beside": most}


def _warnings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every different warning with the numbers it concerns, red first."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number, run in enumerate(runs):
        for result in run.results:
            for flag in result.flags:
                key = (flag["level"], flag["code"], flag["message"])
                warning = found.setdefault(key, {"level": key[0], "code": key[1], "message": key[2], "concerns": []})
                attack = wording.attack_name(result.attack, result.suite)
                about = ", ".join(part for part in (attack, wording.reach_of(result)) if part)
                concern = {"run": number, "name": run.label, "about": about}
                if concern not in warning["concerns"]:
                    warning["concerns"].append(concern)
    return sorted(found.values(), key=lambda warning: (warning["level"] != "red", warning["code"]))


def _configuration(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every setting of every run. One that a run does not have (an evaluated model has none) is no difference."""
    flat = [dict(flattened(run.config)) for run in runs]
    keys = dict.fromkeys(key for values in flat for key in values)
    rows = []
    for key in keys:
        values = [values.get(key) or _unset(key, run) for values, run in zip(flat, runs, strict=True)]
        rows.append({"key": key, "values": values, "differs": len({value for value in values if value}) > 1})
    return rows


def _unset(key: str, run: Run) -> str:
    """An option of a model that is not given has its default, which is a value as others are."""
    return "default" if key.startswith("model.options.") and isinstance(run.config.get("model"), Mapping) else ""


def flattened(values: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, str]]:
    """`{"a": {"b": 1}}` as `("a.b", "1")`, one pair per setting; of options none of which is set, nothing."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from flattened(value, name)
        else:
            yield name, wording.setting(value)


def _provenance(runs: Sequence[Run]) -> dict[str, Any]:
    """One line per evaluation; what all of them share is said once."""
    found: dict[tuple[int, str], tuple[Run, list[Result]]] = {}
    for number, run in enumerate(runs):
        for result in run.results:
            found.setdefault((number, result.evaluation), (run, []))[1].append(result)
    facts = {key: _facts(results[0]) for key, (_, results) in found.items()}
    names = list(next(iter(facts.values()), {}))
    columns = [name for name in names if len({values[name] for values in facts.values()}) > 1]
    first: dict[str, str] = next(iter(facts.values()), {})
    return {
        "shared": [(name, first[name]) for name in names if name not in columns and first[name]],
        "columns": columns,
        "lines": [
            {
                "run": key[0],
                "name": run.label,
                "suite": results[0].suite,
                "threats": _threats(results),
                "cells": [facts[key][name] for name in columns],
            }
            for key, (run, results) in found.items()
        ],
    }


def _threats(results: list[Result]) -> str:
    limits = next((result.extra["limits"] for result in results if result.extra.get("limits")), "")
    threats = list(dict.fromkeys(result.threat for result in results if result.threat))
    if limits and threats == [wording.WHOLE_BOX]:
        return limits
    said = ", ".join(threats) if len(threats) < 4 else f"{len(threats)} radii, {threats[0]} to {threats[-1]}"
    return f"{limits}, {said}" if limits else said


def _facts(result: Result) -> dict[str, str]:
    data = f"{result.data} ({result.data_description})" if result.data_description else result.data
    return {
        "Model": wording.architecture(result),
        "Checkpoint": result.checkpoint or "",
        "Weights, sha256": (result.weights_sha256 or "")[:16],
        "Data": data,
        "Images": f"{result.n:,}",
        "Interval": result.interval,
        "Seed": "" if result.seed is None else str(result.seed),
        "Precision": result.precision,
        "Device": result.device,
        "Time": "" if result.seconds is None else f"{result.seconds:,.0f} s",
        "Date": wording.day(result.created),
        "Versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    }
