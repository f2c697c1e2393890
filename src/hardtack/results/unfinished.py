"""Jobs of a run folder that are not finished: how many of their rows are on disk, and what these show so far.

The engine keeps the pieces of a job in a hidden folder until its final files replace them (`engine.store`). Nothing is
written or locked here, and a file that cannot be read counts as none: the job may be writing it just now.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.arrays import count_rows, read_arrays, read_columns
from hardtack.base.errors import UserError
from hardtack.base.limits import read_json, shorten
from hardtack.base.trust import file_inside

HOMES = ("verdicts", "analysis")  # folders of a run whose hidden folders are jobs
ANNOUNCEMENT = "job.json"
_PIECE = re.compile(r"(\d{8})-(\d{8})\.(parquet|npz|part)")
_JOB = re.compile(r"\.([A-Za-z0-9][A-Za-z0-9._-]{0,199})")
_MOST_ROWS = 10**9


@dataclass(frozen=True, kw_only=True)
class UnfinishedJob:
    """`rows` are finished, in `pieces`; `correct` and `robust` are counts among them, None where they have no verdicts.

    `standing` of `under_way` images in unfinished pieces were still correct when their state was last noted.
    `began` is when the process began that works on it, with `done` rows at that time.
    """

    id: str
    title: str
    unit: str
    running: bool
    total: int | None
    rows: int
    pieces: int
    correct: int | None
    robust: int | None
    standing: int
    under_way: int
    began: float | None
    done: int


def unfinished_jobs(run_dir: str | Path, is_held: Callable[[Path], bool]) -> list[UnfinishedJob]:
    """Every unfinished job of a run folder; `is_held` tells whether a process holds the lock at a path."""
    folder = Path(run_dir)
    jobs = []
    for home in HOMES:
        try:
            names = sorted(path.name for path in file_inside(folder, home).iterdir())
        except (OSError, UserError):
            continue
        for name in names:
            if match := _JOB.fullmatch(name):
                job = _job(folder, f"{home}/{name}", match[1], is_held)
                jobs += [job] if job is not None else []
    return jobs


def _job(folder: Path, name: str, id: str, is_held: Callable[[Path], bool]) -> UnfinishedJob | None:
    try:
        place = file_inside(folder, name)
        files = {path.name for path in place.iterdir()}
    except (OSError, UserError):
        return None
    facts = _announced(place) if ANNOUNCEMENT in files else {}
    counted = _Counted()
    for file in sorted(files):
        if match := _PIECE.fullmatch(file):
            counted.add(folder, f"{name}/{file}", int(match[2]) - int(match[1]), match[3], files)
    lock = place.with_name(f"{place.name}.lock")
    return UnfinishedJob(
        id=id,
        title=facts.get("title", id.rpartition("-")[0]),
        unit=facts.get("unit", "rows"),
        running=is_held(lock),
        total=facts.get("total"),
        rows=counted.rows,
        pieces=counted.pieces,
        correct=counted.correct,
        robust=counted.robust,
        standing=counted.standing,
        under_way=counted.under_way,
        began=facts.get("began"),
        done=facts.get("done", 0),
    )


class _Counted:
    """Sums over the pieces of a job."""

    def __init__(self) -> None:
        self.rows = self.pieces = self.standing = self.under_way = 0
        self.correct: int | None = None
        self.robust: int | None = None

    def add(self, folder: Path, name: str, rows: int, kind: str, files: set[str]) -> None:
        """A file of a piece; an npz beside a parquet is not the one that says that the piece is complete."""
        try:
            path = file_inside(folder, name)
            if not 0 < rows <= _MOST_ROWS:
                return
            if kind == "part":
                self._add_notes(path)
            elif kind == "parquet":
                if count_rows(path) == rows:
                    self._add_verdicts(rows, read_columns(path))
            elif path.with_suffix(".parquet").name not in files and zipfile.is_zipfile(path):
                self.rows, self.pieces = self.rows + rows, self.pieces + 1
        except (OSError, UserError, ValueError, KeyError, TypeError):
            return

    def _add_verdicts(self, rows: int, columns: Any) -> None:
        self.rows, self.pieces = self.rows + rows, self.pieces + 1
        if "clean_correct" in columns:
            self.correct = (self.correct or 0) + int(np.count_nonzero(columns["clean_correct"]))
        if "robust" in columns:
            self.robust = (self.robust or 0) + int(np.count_nonzero(columns["robust"]))

    def _add_notes(self, path: Path) -> None:
        """The state of a piece: images of which no attack has found an adversarial one so far."""
        arrays = read_arrays(path, names=("table.remaining", "table.attacked", "trial"))
        remaining, attacked = (np.asarray(arrays[f"table.{name}"], dtype=bool) for name in ("remaining", "attacked"))
        begun = slice(0, int(arrays["trial"]) + 1)
        correct = remaining[0] | attacked[0]
        self.standing += int(np.count_nonzero(correct & ~(attacked & ~remaining)[begun].any(axis=0)))
        self.under_way += remaining.shape[1]


def _announced(place: Path) -> dict[str, Any]:
    """What the process says of the job, as far as it makes sense."""
    try:
        values = read_json(file_inside(place, ANNOUNCEMENT), limit=65536)
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    facts: dict[str, Any] = {name: shorten(values[name], 80) for name in ("title", "unit") if name in values}
    for name in ("total", "done"):
        if isinstance(values.get(name), int) and 0 <= values[name] <= _MOST_ROWS:
            facts[name] = int(values[name])
    if isinstance(values.get("began"), int | float) and 0 < values["began"] < 1e11:
        facts["began"] = float(values["began"])
    return facts
