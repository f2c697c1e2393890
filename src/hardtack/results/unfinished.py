"""Jobs of a run folder that are not finished: how many of their rows are on disk, and what these show so far.

The engine keeps the pieces of a job in a hidden folder until its final files replace them (`engine.store`). Nothing is
written or locked here, and a file that cannot be read counts as none: the job may be writing it just now.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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


class Counts(NamedTuple):
    """What one file of a piece adds to its job."""

    rows: int = 0
    pieces: int = 0
    correct: int | None = None
    robust: int | None = None
    standing: int = 0
    under_way: int = 0


# of files that were read before: their state, and what they add
Known = dict[Path, tuple[tuple[int, ...], Counts]]


def unfinished_jobs(
    run_dir: str | Path, is_held: Callable[[Path], bool], known: Known | None = None
) -> list[UnfinishedJob]:
    """Every unfinished job of a run folder; `is_held` tells whether a process holds the lock at a path.

    Whoever asks again and again keeps `known`, so that a piece is read once.
    """
    folder, known = Path(run_dir), {} if known is None else known
    jobs = []
    for home in HOMES:
        try:
            names = sorted(path.name for path in file_inside(folder, home).iterdir())
        except (OSError, UserError):
            continue
        for name in names:
            if match := _JOB.fullmatch(name):
                job = _job(folder, f"{home}/{name}", match[1], is_held, known)
                jobs += [job] if job is not None else []
    return jobs


def _job(folder: Path, name: str, id: str, is_held: Callable[[Path], bool], known: Known) -> UnfinishedJob | None:
    try:
        place = file_inside(folder, name)
        files = {path.name for path in place.iterdir()}
    except (OSError, UserError):
        return None
    facts = _announced(place) if ANNOUNCEMENT in files else {}
    counts = [
        _counts(folder, f"{name}/{file}", match, files, known) for file in files if (match := _PIECE.fullmatch(file))
    ]
    return UnfinishedJob(
        id=id,
        title=facts.get("title", id.rpartition("-")[0]),
        unit=facts.get("unit", "rows"),
        running=is_held(place.with_name(f"{place.name}.lock")),
        total=facts.get("total"),
        rows=sum(count.rows for count in counts),
        pieces=sum(count.pieces for count in counts),
        correct=_sum(count.correct for count in counts),
        robust=_sum(count.robust for count in counts),
        standing=sum(count.standing for count in counts),
        under_way=sum(count.under_way for count in counts),
        began=facts.get("began"),
        done=facts.get("done", 0),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    counted = [number for number in numbers if number is not None]
    return sum(counted) if counted else None


def _counts(folder: Path, name: str, match: re.Match[str], files: set[str], known: Known) -> Counts:
    """What a file adds. An npz beside a parquet is not the file that says that the piece is complete."""
    rows, kind = int(match[2]) - int(match[1]), match[3]
    if not 0 < rows <= _MOST_ROWS or (kind == "npz" and f"{match[1]}-{match[2]}.parquet" in files):
        return Counts()
    try:
        path = file_inside(folder, name)
        facts = path.stat()
        sign = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if known.get(path, ((), None))[0] != sign:
            known[path] = (sign, _read(path, rows, kind))
        return known[path][1]
    except (OSError, UserError, ValueError, KeyError, IndexError, TypeError):
        return Counts()


def _read(path: Path, rows: int, kind: str) -> Counts:
    if kind == "part":
        return _read_notes(path)
    if kind == "npz":
        return Counts(rows, 1) if zipfile.is_zipfile(path) else Counts()
    if count_rows(path) != rows:
        return Counts()
    columns = read_columns(path)
    correct, robust = (
        int(np.count_nonzero(columns[column])) if column in columns else None for column in ("clean_correct", "robust")
    )
    return Counts(rows, 1, correct, robust)


def _read_notes(path: Path) -> Counts:
    """The state of a piece: images of which no attack has found an adversarial one so far."""
    arrays = read_arrays(path, names=("table.remaining", "table.attacked", "trial"))
    remaining, attacked = (np.asarray(arrays[f"table.{name}"], dtype=bool) for name in ("remaining", "attacked"))
    begun = slice(0, int(arrays["trial"]) + 1)
    correct = remaining[0] | attacked[0]
    standing = int(np.count_nonzero(correct & ~(attacked & ~remaining)[begun].any(axis=0)))
    return Counts(standing=standing, under_way=int(remaining.shape[1]))


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
