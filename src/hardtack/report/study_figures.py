"""A study's figures for papers: its plots, and the report's charts and pictures that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hardtack.base.files import write_text
from hardtack.report import charts, palette
from hardtack.report.damage import with_sound_runs
from hardtack.report.figures import save_charts, save_examples, save_masks
from hardtack.report.study_plots import study_charts
from hardtack.report.study_runs import study_runs
from hardtack.report.study_view import StudyView
from hardtack.results import Run

WRITTEN = ".written"  # the names of the figures that the last call wrote


def write_study_figures(
    study: StudyView, run_dirs: Iterable[str | Path], folder: str | Path, *, formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Write them into `folder`, which lies beside the study's page; returns the files. Examples are only PNG.

    Figures that an earlier call wrote and that are no longer the study's are removed; other files stay.
    """
    folder = Path(folder)
    found = study_runs(study, run_dirs, folder.parent)
    runs, drawn = with_sound_runs(found, lambda kept: _charts_of(study, kept))
    written = save_charts([*study_charts(study), *drawn], folder, formats=formats)
    if "masks" in study["figures"]:
        written += save_masks(runs, folder, formats=formats)
    if "examples" in study["figures"]:
        written += save_examples(runs, folder)
    _remove_old(folder, {path.name for path in written})
    return written


def _remove_old(folder: Path, names: set[str]) -> None:
    """Delete what the list of the last call names and this one did not write; then keep the list of this call."""
    listed = folder / WRITTEN
    before = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    for name in before:
        old = folder / name
        if name not in names and old.name == name and old.suffix in (".png", ".pdf", ".svg") and old.is_file():
            old.unlink()
    if names:
        write_text(listed, "\n".join(sorted(names)) + "\n")


def _charts_of(study: StudyView, runs: Sequence[Run]) -> tuple[Sequence[Run], list[dict[str, Any]]]:
    runs = palette.in_order(runs)
    sections = charts.sections(runs) if runs else []
    named = set(study["figures"])
    ids = {
        id
        for section in sections
        for entry, entry_ids in section["entries"].items()
        if named & {section["id"], entry}
        for id in entry_ids
    }
    return runs, [chart for section in sections for chart in section["charts"] if chart["id"] in ids]
