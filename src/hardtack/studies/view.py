"""A study's cells and verdicts as the plain values that tables, pages and figures are made of (`StudyView`)."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hardtack
from hardtack.report.study_view import (
    MEASURED,
    NOT_AT_THIS_SCALE,
    NOT_RUN_YET,
    QUOTED,
    Flag,
    StudyCell,
    StudyClaim,
    StudyView,
)
from hardtack.studies.cells import Cells
from hardtack.studies.claim_expression import Linear, Term
from hardtack.studies.claim_statistics import compare_with_zero
from hardtack.studies.claims import judge
from hardtack.studies.column import StudyColumn
from hardtack.studies.measuring import unit_of
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import Unit

_DIGITS = {"percent": 2, "fraction": 3, "number": 2}
Failures = Mapping[Unit, Mapping[str, str]]


def study_view(
    scaled: ScaledStudy,
    cells: Cells,
    failures: Failures,
    *,
    units: Sequence[Unit],
    root: Path,
    page_folder: Path,
    seeds: int,
    changes: Sequence[str] = (),
    command: str,
    device: str,
    seconds: float,
) -> StudyView:
    """Everything that is known about a study at one scale; `scaled` has all rows of the scale."""
    study = scaled.study
    shown = {**study.columns, **scaled.columns}
    runs = {row: _runs(row, scaled, units, root, page_folder) for row in study.rows}
    return {
        "name": study.name, "title": study.title, "paper": study.paper, "asks": study.asks, "kind": study.kind,
        "scale": scaled.scale.name, "seeds": seeds, "notes": [*scaled.scale.note, *_change_note(changes)],
        "protocol_note": study.protocol_note,
        "columns": [
            {
                "name": column.name, "title": column.title, "unit": unit_of(column), "digits": digits_of(column),
                "lower": column.lower, "ours": column.ours,
            }
            for column in shown.values()
        ],
        "rows": [
            {
                "name": row.name, "title": row.title, "group": row.group,
                "state": _state(scaled, row.name, cells, failures),
                "runs": list(runs[row.name]), "run_names": list(runs[row.name].values()), "x": row.x,
                "measured_by": _measured_by(row.name, scaled, cells),
                "cells": _cells(scaled, row.name, cells, shown),
            }
            for row in study.rows.values()
        ],
        "claims": claims_view(scaled, cells),
        "plots": [
            {
                "kind": plot.kind, "x": plot.x, "x_title": plot.x_title, "y": list(plot.y), "title": plot.title,
                "log": plot.log,
            }
            for plot in study.plots
        ],
        "figures": list(study.figures), "command": command,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": hardtack.__version__, "device": device, "seconds": seconds,
    }  # fmt: skip


def _change_note(changes: Sequence[str]) -> list[str]:
    return [f"changed on the command line: {', '.join(changes)}"] if changes else []


def digits_of(column: StudyColumn) -> int:
    """Decimals of a column, as the paper prints them."""
    return column.digits if column.digits is not None else _DIGITS[unit_of(column)]


def claims_view(scaled: ScaledStudy, cells: Cells) -> list[StudyClaim]:
    """Every claim with its verdict; the wording says what was tested and on what."""
    study = scaled.study
    titles = {name: column.title for name, column in study.columns.items()}
    titles |= {name: row.title for name, row in study.rows.items()}
    units = {name: unit_of(column) for name, column in study.columns.items()}
    exact = [name for name, column in study.columns.items() if column.has_no_error]
    verdicts = judge(study.parsed_claims(), cells, titles=titles, units=units, exact=exact)
    return [
        {
            "says": claim.says, "where": claim.where, "test": claim.test, "verdict": verdict.verdict,
            "sentence": verdict.sentence, "effect": verdict.effect, "low": verdict.low, "high": verdict.high,
            "p": verdict.p, "adjusted_p": verdict.adjusted,
        }
        for claim, verdict in zip(study.claims, verdicts, strict=True)
    ]  # fmt: skip


def _state(scaled: ScaledStudy, row: str, cells: Cells, failures: Failures) -> str:
    if set(scaled.study.trainings) <= set(scaled.study.rows[row].skip):
        return QUOTED
    if row not in scaled.rows:
        return NOT_AT_THIS_SCALE
    for unit, failed in failures.items():
        if unit.row == row and failed:
            column, message = next(iter(failed.items()))
            return f"failed: {f'{column}: ' if column else ''}{message.splitlines()[0]}"
    trainings = {training.name for training in scaled.trainings_of(scaled.rows[row])}
    wanted = [column.name for column in scaled.columns.values() if column.training in trainings]
    return MEASURED if wanted and all((row, name) in cells for name in wanted) else NOT_RUN_YET


def _cells(scaled: ScaledStudy, row: str, cells: Cells, columns: Mapping[str, StudyColumn]) -> dict[str, StudyCell]:
    said = scaled.study.paper_says.get(row, {})
    return {name: _cell(said.get(name), row, column, cells) for name, column in columns.items()}


def _cell(paper: float | None, row: str, column: StudyColumn, cells: Cells) -> StudyCell:
    """The mean over seeds with its interval: over images for one seed, over images and seeds for several."""
    measured = cells.get((row, column.name), ())
    if not measured:
        return {
            "paper": paper, "value": None, "low": None, "high": None, "n": 0, "seeds": 0, "values": [], "flags": [],
            "difference": None,
        }  # fmt: skip
    values = [cell.value for cell in measured]
    value = sum(values) / len(values)
    low, high = measured[0].low, measured[0].high
    if len(measured) > 1:
        alone = Linear((Term(kind="cell", column=column.name, rows=(row,)),))
        units = {column.name: unit_of(column)}
        outcome = compare_with_zero(alone, above=True, cells=cells, units=units, confidence=0.95)
        low, high = (_within(end, units[column.name]) for end in (outcome.low, outcome.high))
    flags = {str(sorted(flag.items())): flag for cell in measured for flag in cell.flags}
    return {
        "paper": paper, "value": value, "low": low, "high": high, "n": measured[0].n, "seeds": len(measured),
        "values": values, "flags": [_flag(flag) for flag in flags.values()],
        "difference": None if paper is None else value - paper,
    }  # fmt: skip


def _within(end: float | None, unit: str) -> float | None:
    """An end of an interval: a share is never below 0 or above the whole."""
    whole = {"percent": 100.0, "fraction": 1.0}.get(unit)
    return end if end is None or whole is None else min(max(end, 0.0), whole)


def _flag(flag: Mapping[str, Any]) -> Flag:
    return {"level": str(flag["level"]), "code": str(flag["code"]), "message": str(flag["message"])}


def _measured_by(row: str, scaled: ScaledStudy, cells: Cells) -> list[str]:
    """The ids of the evaluations and analyses behind the cells of a row."""
    measured = [cell for name in scaled.columns for cell in cells.get((row, name), ())]
    return sorted({cell.evaluation for cell in measured if cell.evaluation})


def _runs(row: str, scaled: ScaledStudy, units: Sequence[Unit], root: Path, page_folder: Path) -> dict[str, str]:
    """The run folders of a row that exist, relative to the folder of the page: what tells each from the others."""
    own = [unit for unit in units if unit.row == row]
    trainings, seeds = {unit.training for unit in own}, {unit.seed for unit in own}
    start = page_folder.resolve()
    runs: dict[str, str] = {}
    for unit in own:
        folder = unit.folder(root)
        if folder.is_dir():
            training = scaled.study.trainings[unit.training].title or unit.training
            parts = [training] * (len(trainings) > 1) + [f"seed {unit.seed}"] * (len(seeds) > 1)
            runs.setdefault(Path(os.path.relpath(folder.resolve(), start)).as_posix(), ", ".join(parts))
    return runs
