"""The state of every study, from the records in the folder of the studies; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.base.lock import is_held
from hardtack.report.site.study_pages import StudyFolder
from hardtack.report.study_record import RECORD, read_record
from hardtack.report.study_view import MEASURED, NOT_AT_THIS_SCALE, QUOTED, StudyView, verdict_counts
from hardtack.results import is_run
from hardtack.studies.study import SCALES, Study, load_study
from hardtack.studies.study_files import list_studies

SEARCH_DEPTH = 6  # of folders below the one that was named


@dataclass(frozen=True, kw_only=True)
class StudyState:
    """A study at the largest scale that was run, or not run at all (`view` is None)."""

    study: Study
    view: StudyView | None = None
    folder: Path | None = None
    running: bool = False

    @property
    def rows(self) -> tuple[int, int]:
        """Rows measured, and rows that the scale has."""
        if self.view is None:
            return 0, len(self.study.rows)
        there = [row for row in self.view["rows"] if row["state"] not in (NOT_AT_THIS_SCALE, QUOTED)]
        return sum(row["state"] == MEASURED for row in there), len(there)

    @property
    def counts(self) -> dict[str, int]:
        return verdict_counts(self.view) if self.view is not None else {}

    @property
    def words(self) -> str:
        """not run, running, n of m rows, or the verdicts."""
        return ", ".join(filter(None, [self.progress, self.verdicts])) or "no claims"

    @property
    def verdicts(self) -> str:
        """How many claims have each verdict."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)

    @property
    def progress(self) -> str:
        """not run, running, n of m rows, how many failed; nothing where all rows were measured."""
        if self.view is None:
            return "running" if self.running else "not run"
        done, there = self.rows
        failed = sum(row["state"].startswith("failed") for row in self.view["rows"])
        parts = ["running"] * self.running + [f"{done} of {there} rows"] * (done < there or self.running)
        return ", ".join([*parts, *[f"{failed} failed"] * bool(failed)])


def states(root: str | Path) -> list[StudyState]:
    """The state of every study, in the order of the papers, and of the user's own that were run in this folder."""
    known = list_studies()
    return [*(state_of(name, root) for name in known), *_own_states(local_path(root), set(known))]


def _own_states(root: Path, known: set[str]) -> list[StudyState]:
    """Studies from files of the user's, as their records describe them; each at the largest scale that was run."""
    own: dict[str, StudyState] = {}
    for scale in SCALES:
        for record in sorted(root.glob(f"*/{scale}/{RECORD}")):
            view = read_record(record.parent)
            if view is not None and view["name"] == record.parents[1].name and view["name"] not in known:
                about = Study(name=view["name"], title=view["title"], paper=view["paper"], asks=view["asks"])
                running = is_held(record.parent / ".lock")
                own[view["name"]] = StudyState(study=about, view=view, folder=record.parent, running=running)
    return list(own.values())


def state_of(name: str, root: str | Path, scale: str | None = None) -> StudyState:
    """The state of one study: at `scale`, or at the largest that was run."""
    study = load_study(name)
    if scale is not None and scale not in SCALES:
        raise UserError(f"there is no scale '{scale}'{did_you_mean(str(scale), SCALES)}; scales: {', '.join(SCALES)}")
    for wanted in [scale] if scale else reversed(SCALES):
        folder = local_path(root) / study.name / str(wanted)
        running = is_held(folder / ".lock")
        view = read_record(folder)
        if view is not None or running:
            return StudyState(study=study, view=view, folder=folder, running=running)
    return StudyState(study=study)


def study_folders(paths: Iterable[Path]) -> list[StudyFolder]:
    """Every study below these folders, at each scale that was run; links are not followed, and runs not searched."""
    found: dict[Path, StudyFolder] = {}
    for top in paths:
        for here, folders, files in os.walk(top):
            depth = len(Path(here).relative_to(top).parts)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < SEARCH_DEPTH)
            if is_run(here):
                folders.clear()
            elif RECORD in files:
                folders.clear()
                folder = Path(here)
                found.setdefault(folder.resolve(), StudyFolder(folder=folder, view=read_record(folder)))
    return list(found.values())
