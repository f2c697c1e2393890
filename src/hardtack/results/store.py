"""Run folders on disk: results, training metrics and per-image verdicts.

Files are written whole and renamed into place, so that a reader never sees a half-written one. What a long job has
finished so far is kept by the engine until its final files are written here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hardtack.base.arrays import Columns, read_columns, write_columns
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path, write_text
from hardtack.base.limits import LINES, RESULTS, bounded_lines, check_depth, shorten
from hardtack.base.trust import file_inside
from hardtack.results.record import Result, from_json, to_json

RUN_FILES = ("config.yaml", "results.jsonl", "metrics.jsonl")
SEARCH_DEPTH = 3


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """A lock for writers: two evaluations of one run may end at the same time."""
    try:
        import fcntl
    except ImportError:  # Windows: the rename is still atomic, only a simultaneous writer could be lost
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # a link of that name is not followed: it could lead to any file of the user's
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with os.fdopen(handle, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- results and metrics


def append_result(run_dir: str | Path, result: Result) -> None:
    """Add a result to the run. A result with the same evaluation, metric and threat is replaced."""
    append_results(run_dir, [result])


def append_results(run_dir: str | Path, results: Iterable[Result], *, replacing: str | None = None) -> None:
    """Add several results in one write; all other results of the evaluation `replacing` are removed."""
    path = Path(run_dir) / "results.jsonl"
    with _locked(path.with_name(".results.lock")):
        kept = {_identity(old): old for old in read_results(run_dir)}
        new_results = {_identity(new): new for new in results}
        kept = {key: old for key, old in kept.items() if old.evaluation != replacing or key in new_results}
        kept.update(new_results)
        write_text(path, "".join(to_json(result) + "\n" for result in kept.values()))


def read_results(run_dir: str | Path, *, problems: list[str] | None = None) -> list[Result]:
    """Every result of the run, oldest first; none when it has not been evaluated.

    A line that cannot be read is an error; with a list `problems` it is named there and left out.
    """
    return _read_lines(Path(run_dir) / "results.jsonl", from_json, most=RESULTS, problems=problems)


def read_metrics(run_dir: str | Path, *, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """Every line of the run's training metrics; none when it was not trained here. `problems` as in `read_results`."""
    return _read_lines(Path(run_dir) / "metrics.jsonl", _mapping, most=LINES, problems=problems)


def _identity(result: Result) -> tuple[Any, ...]:
    return result.evaluation, result.metric, result.threat, result.attack, result.extra.get("column")


def _mapping(line: str) -> dict[str, Any]:
    value = json.loads(line)
    check_depth(line)
    if not isinstance(value, dict):
        raise UserError(f"expected a JSON object, found {type(value).__name__}")
    return value


def _read_lines(path: Path, parse: Callable[[str], Any], *, most: int, problems: list[str] | None = None) -> list[Any]:
    values: list[Any] = []
    if not path.is_file():
        return values
    try:
        for number, line, is_whole in bounded_lines(path, most=most):
            if not line.strip():
                continue
            try:
                values.append(parse(line))
            except (ValueError, TypeError, RecursionError) as error:
                # Only a line that lacks its newline can have been cut off by a crash.
                if not is_whole:
                    warnings.warn(f"{path}:{number}: the last line is half-written (a crash?) and was skipped")
                    continue
                reason = shorten(error, 300)
                if problems is None:
                    raise UserError(f"{path}:{number} is corrupt ({reason}); repair or remove that line") from None
                problems.append(f"{path}:{number} is corrupt ({reason}); the line was left out")
    except UserError as error:  # of the file as a whole
        if problems is None:
            raise
        problems.append(f"{error}; what follows in this file was left out")
    return values


# ---------------------------------------------------------------- verdicts


def verdicts_path(run_dir: str | Path, id: str) -> Path:
    """Where the verdicts of a finished evaluation are."""
    return Path(run_dir) / "verdicts" / f"{_file_name(id)}.parquet"


def adversarial_folder(run_dir: str | Path, id: str) -> Path:
    """Where the adversarial images that decided an evaluation's verdicts are."""
    return Path(run_dir) / "adversarial" / _file_name(id)


def stored_verdicts(run_dir: str | Path, result: Result) -> Columns:
    """The verdicts that a result names, which must be a file of its run folder."""
    return read_verdicts(file_inside(run_dir, str(result.verdicts)))


def _file_name(id: str) -> str:
    """The id of an evaluation, if it can be the name of a file: records may come from anybody."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", id):
        raise UserError(f"the evaluation id '{shorten(id)}' may have only letters, digits, '.', '_' and '-'")
    return id


def write_verdicts(path: str | Path, columns: Mapping[str, Any]) -> Path:
    """One row per image as parquet. `columns`: name → n numbers, booleans or texts (None allowed)."""
    return write_columns(path, columns)


def read_verdicts(path: str | Path) -> Columns:
    """The columns of a verdict file: name → array of shape (n,)."""
    path = Path(path)
    if not path.is_file():
        near = did_you_mean(path.name, [item.name for item in path.parent.glob("*.parquet")])
        raise UserError(f"there is no verdict file {path}{near}")
    try:
        return read_columns(path)
    except UserError:
        raise UserError(f"{path} is not a readable parquet file; evaluate the run again") from None


# ---------------------------------------------------------------- finding runs


def is_run(folder: str | Path) -> bool:
    """Whether a folder contains any of the files that mark a run."""
    return any((Path(folder) / name).is_file() for name in RUN_FILES)


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """The run folders that `paths` name: runs themselves, or folders with runs up to three levels below."""
    folders: dict[Path, Path] = {}
    for path in [paths] if isinstance(paths, str | Path) else list(paths):
        folder = local_path(path)
        if not folder.is_dir():
            raise UserError(_no_folder(folder))
        runs = list(_runs_below(folder, SEARCH_DEPTH))
        if not runs:
            raise UserError(f"{folder} holds no run (a folder with {' or '.join(RUN_FILES)}); train or evaluate first")
        folders.update({run.resolve(): run for run in runs if run.resolve() not in folders})
    if not folders:
        raise UserError("no run folder was given; name at least one, for example runs/")
    return list(folders.values())


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
    elif depth > 0:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from _runs_below(child, depth - 1)


def _no_folder(folder: Path) -> str:
    if folder.is_file():
        return f"{folder} is a file; give the run folder that holds it"
    parent = folder.parent
    names = [item.name for item in parent.iterdir() if item.is_dir()] if parent.is_dir() else []
    return f"there is no folder {folder}{did_you_mean(folder.name, names)}"
