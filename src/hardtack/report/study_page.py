"""A study's page: the report on its runs with the study on top, claims first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hardtack.base.files import write_text
from hardtack.report import wording
from hardtack.report.damage import with_sound_runs
from hardtack.report.kinds import words
from hardtack.report.page import Shared, render_page
from hardtack.report.study_cells import NONE, cell_text, head
from hardtack.report.study_plots import study_charts
from hardtack.report.study_runs import charts_first, study_runs
from hardtack.report.study_tables import scale_line
from hardtack.report.study_view import (
    MEASURED,
    StudyCell,
    StudyClaim,
    StudyColumn,
    StudyRow,
    StudyView,
    cell_of,
    verdict_counts,
)
from hardtack.report.view import kinds_in, part, view
from hardtack.results import Run

PAPER_SCALE = "paper"  # the one at which nothing stands in for anything
VERDICT_COLOURS = {"reproduced": "green", "refuted": "red", "undecided": "yellow", "not measured": "grey"}
VERDICT_SIGNS = {"reproduced": "✓", "refuted": "✗", "undecided": "?", "not measured": "·"}


def write_study_page(study: StudyView, run_dirs: Iterable[str | Path], output: str | Path) -> Path:
    """Write the page to `output`. Folders of `run_dirs` that are no run (yet) are left out; there may be no run at all.

    The paths of the study's rows are relative to the page's folder.
    """
    output = Path(output)
    runs = study_runs(study, run_dirs, output.parent)
    return write_text(output, with_sound_runs(runs, lambda kept: study_html(study, kept, output)))


def study_html(study: StudyView, runs: Sequence[Run], output: Path, *, shared: Shared | None = None) -> str:
    """The page; `output` is where it will lie, and `shared` are the files of the site that it belongs to."""
    values = view(runs, output)
    plots = study_charts(study)
    first, rest, missing = charts_first(values["parts"] if runs else [], study["figures"])
    drawn = {"id": "plots", "title": "Plots", "charts": plots, "layout": "charts two", "runs": []}
    parts = [
        *([part("claims", "Claims", count=len(study["claims"]))] if study["claims"] else []),
        part("study_table", "Table", id="table"),
        *([part("charts", "Plots", id="plots", section=drawn)] if plots else []),
        *first,
        *([part("missing_figures", "Figures", id="figures")] if missing else []),
        part("repeat", "Repeat it"),
        *rest,
    ]
    return render_page(
        {
            **values,
            "title": study["title"],
            "parts": parts,
            "chart_words": {**values["chart_words"], **{kind: words(kind) for kind in kinds_in([drawn])}},
            "study": _study(study, missing),
        },
        "study_page.html",
        styles=["study"],
        shared=shared,
    )


def _study(study: StudyView, missing: Sequence[str]) -> dict[str, Any]:
    notes = [*study["notes"], *([study["protocol_note"]] if study["protocol_note"] else [])]
    return {
        "name": study["name"],
        "asks": study["asks"],
        "lede": [part for part in (study["paper"], study["kind"], wording.day(study["created"])) if part],
        "scale": scale_line(study),
        "smaller": study["scale"] != PAPER_SCALE,
        "notes": notes,
        "counts": count_badges(verdict_counts(study)),
        "claims": [_claim(claim) for claim in study["claims"]],
        "columns": [_column(column) for column in study["columns"]],
        "rows": [_row(row, study) for row in study["rows"]],
        "missing": missing,
        "command": study["command"],
        "facts": _facts(study),
    }


def count_badges(counts: dict[str, int]) -> list[dict[str, Any]]:
    """The verdicts that occur, with their colours."""
    return [
        {"count": counts[verdict], "verdict": verdict, "colour": colour, "sign": VERDICT_SIGNS[verdict]}
        for verdict, colour in VERDICT_COLOURS.items()
        if counts.get(verdict)
    ]


def _claim(claim: StudyClaim) -> dict[str, Any]:
    effect = "" if claim["effect"] is None else f"effect {_signed(claim['effect'])}"
    if effect and claim["low"] is not None and claim["high"] is not None:
        effect += f" [{_signed(claim['low'])}, {_signed(claim['high'])}]"
    p = "" if claim["p"] is None else wording.p_value(claim["p"])
    adjusted = "" if claim["adjusted_p"] is None else f"adjusted {wording.p_value(claim['adjusted_p'])}"
    return {
        **claim,
        "colour": VERDICT_COLOURS[claim["verdict"]],
        "sign": VERDICT_SIGNS[claim["verdict"]],
        "numbers": [text for text in (effect, p, adjusted) if text],
    }


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _column(column: StudyColumn) -> dict[str, Any]:
    return {"head": head(column), "ours": column["ours"], "lower": column["lower"]}


def _row(row: StudyRow, study: StudyView) -> dict[str, Any]:
    return {
        "title": row["title"],
        "group": row["group"],
        "state": "" if row["state"] == MEASURED else row["state"],
        "failed": row["state"].startswith("failed"),
        "cells": [_cell(cell_of(row, column["name"]), column) for column in study["columns"]],
    }


def _cell(cell: StudyCell, column: StudyColumn) -> dict[str, Any]:
    text = cell_text(cell, column)
    seeds = f"{len(cell['values'])} seeds: {', '.join(f'{value:.4g}' for value in cell['values'])}"
    about = [wording.image_count(cell["n"]) if cell["n"] else "", seeds if len(cell["values"]) > 1 else ""]
    return {
        "ours": "" if cell["value"] is None else text.ours,
        "interval": text.interval,
        "about": "; ".join(part for part in about if part),
        "paper": "" if column["ours"] else text.paper,
        "difference": "" if text.difference == NONE else text.difference,
        "flags": [flag for flag in cell["flags"] if flag["level"] == "red"],
    }


def _facts(study: StudyView) -> list[tuple[str, str]]:
    facts = {
        "Device": study["device"],
        "Time": wording.duration(study["seconds"]) if study["seconds"] else "",
        "Made": wording.day(study["created"]),
        "hardtack": study["version"],
    }
    return [(name, value) for name, value in facts.items() if value]
