"""Telling it: one offline page over many runs, a card per run, figures for papers. Needs no torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from hardtack.base.errors import UserError
from hardtack.base.files import local_path, unwritable_folder
from hardtack.report.card import write_card
from hardtack.report.page import write_page
from hardtack.report.study_index import write_study_index
from hardtack.report.study_page import write_study_page
from hardtack.report.study_view import StudyView
from hardtack.results import find_runs

__all__ = [
    "write_card",
    "write_figures",
    "write_page",
    "write_report",
    "write_study_figures",
    "write_study_index",
    "write_study_page",
]


def write_report(run_dirs_or_parents: str | Path | Iterable[str | Path], output: str | Path | None = None) -> Path:
    """Write the page over these runs and a `card.md` inside each; returns the page's path.

    The page goes to `output`, by default `report.html` in the runs' common parent folder.
    """
    page = local_path(output) if output else None
    runs = find_runs(run_dirs_or_parents)
    if page is None:
        page = _common_parent(runs) / "report.html"
    if page.is_dir():
        page = page / "report.html"
    elif page.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"the report is an HTML page; name it {page.with_suffix('.html')}, not {page}")
    write_page(runs, page)
    refused = [str(run) for run in runs if not _card_is_written(run)]
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        warnings.warn(f"no card.md was written in {refused[0]}{more}: no permission", stacklevel=2)
    return page


def _card_is_written(run: Path) -> bool:
    """Write the card of a run; False where its folder cannot be written, as in a colleague's."""
    try:
        write_card(run)
    except OSError as error:
        if unwritable_folder(error) is None:
            raise
        return False
    return True


def write_figures(
    run_dirs: str | Path | Iterable[str | Path], folder: str | Path, *, formats: Sequence[str] = ("pdf", "svg", "png")
) -> list[Path]:
    """Figures for papers (see `hardtack.report.figures`); matplotlib is imported only here."""
    from hardtack.report.figures import write_figures as write

    return write(run_dirs, folder, formats=formats)


def write_study_figures(
    study: StudyView, run_dirs: Iterable[str | Path], folder: str | Path, *, formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """The plots of a study and the charts that belong to it (see `hardtack.report.study_figures`)."""
    from hardtack.report.study_figures import write_study_figures as write

    return write(study, run_dirs, folder, formats=formats)


def _common_parent(runs: list[Path]) -> Path:
    parents = [str(run.resolve().parent) for run in runs]
    return Path(os.path.commonpath(parents))
