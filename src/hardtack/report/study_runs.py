"""The run folders of a study, named as its rows are, and which of the report's charts belong to the study."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardtack.report import charts
from hardtack.report.study_view import StudyView
from hardtack.results import Run, is_run, read_runs

PICTURES = ("examples", "masks")  # parts of the page beside the sections of charts that a study may name
_MOVABLE = ("charts", "training", *PICTURES)  # templates of parts


def figure_names() -> list[str]:
    """What a study may list under `figures`: sections and entries of charts, examples and masks."""
    return sorted({*charts.names(), *PICTURES})


def study_runs(study: StudyView, run_dirs: Iterable[str | Path], page_folder: Path) -> list[Run]:
    """The runs that exist, in this order. `page_folder` is what the paths of the study's rows are relative to.

    Of their results only those of the study are kept: another study may have measured the same run in its own way.
    """
    folders = [Path(folder) for folder in run_dirs]
    present = [folder for folder in folders if folder.is_dir() and is_run(folder)]
    if not present:
        return []
    runs = [_own_results(run, study) for run in read_runs(present)]
    names = _row_names(study, page_folder)
    labels = [names.get(run.path.resolve(), run.label) for run in runs]
    if len(set(labels)) < len(labels):  # two rows have one title: folders tell them apart
        return runs
    return [dataclasses.replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _own_results(run: Run, study: StudyView) -> Run:
    if not any("measured_by" in row for row in study["rows"]):
        return run
    own = {id for row in study["rows"] for id in row.get("measured_by", ())}
    protocol = f"study {study['name']} 1"  # the row that the study itself writes
    return dataclasses.replace(
        run,
        findings=[finding for finding in run.findings if finding.id in own],
        results=[result for result in run.results if result.evaluation in own or result.protocol == protocol],
    )


def _row_names(study: StudyView, page_folder: Path) -> dict[Path, str]:
    """`CCTT` for the only run of a row; of several, `CCTT, ordinary training, seed 1`; without names, their folders."""
    names: dict[Path, str] = {}
    for row in study["rows"]:
        folders = [(page_folder / folder).resolve() for folder in row["runs"]]
        shared = os.path.commonpath(folders) if len(folders) > 1 else None
        told = row.get("run_names") or [""] * len(folders)
        for folder, name in zip(folders, told, strict=True):
            own = f", {name}" if name else "" if shared is None else f" {folder.relative_to(shared).as_posix()}"
            names.setdefault(folder, f"{row['title']}{own}")
    return names


def charts_first(
    parts: Sequence[Mapping[str, Any]], figures: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """The parts of the page that `figures` name, in this order; the other parts; and the names that have no data.

    An entry that shares its section with others takes its own charts out of it.
    """
    first: list[dict[str, Any]] = []
    rest = [dict(part) for part in parts]
    missing = []
    for name in dict.fromkeys(figures):
        movable = [part for part in rest if part["template"] in _MOVABLE]
        whole = next((part for part in movable if part["id"] == name or _only_entry(part) == name), None)
        shared = next((part for part in movable if name in _entries(part)), None)
        if whole is not None:
            rest.remove(whole)
            first.append(whole)
        elif shared is not None:
            taken, left = _taken_out(shared, name)
            rest[rest.index(shared)] = left
            first.append(taken)
        elif not any(name == part["id"] or name in _entries(part) for part in first):
            missing.append(name)
    return first, rest, missing


def _entries(part: Mapping[str, Any]) -> dict[str, list[str]]:
    """The entries of a section that have charts, each with the ids of them."""
    return {name: ids for name, ids in (part["section"] or {}).get("entries", {}).items() if ids}


def _only_entry(part: Mapping[str, Any]) -> str:
    entries = _entries(part)
    return next(iter(entries)) if len(entries) == 1 else ""


def _taken_out(part: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    section, entries = part["section"], _entries(part)
    own = [chart for chart in section["charts"] if chart["id"] in entries[name]]
    others = [chart for chart in section["charts"] if chart["id"] not in entries[name]]
    id = f"{part['id']}-{name}"
    taken = {**section, "id": id, "charts": own, "runs": charts.runs_in(own), "entries": {name: entries.pop(name)}}
    left = {**section, "charts": others, "runs": charts.runs_in(others), "entries": entries}
    return {**part, "id": id, "section": taken}, {**part, "section": left}
