"""Run folders on disk: results, metrics and per-image verdicts, written whole and renamed into place.

A reader never sees a half-written file. A long evaluation writes its verdicts in numbered chunks and merges
them at the end, so that a killed one loses at most the chunk it was in.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import atomic, write_text
from hardtack.results.record import Result, from_json, to_json

RUN_FILES = ("config.yaml", "results.jsonl", "metrics.jsonl")
SEARCH_DEPTH = 3


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time: two evaluations of one run may end in the same second."""
    try:
        import fcntl
    except ImportError:  # Windows: the rename is still atomic, only a simultaneous writer could be lost
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- results and metrics


def append_result(run_dir: str | Path, result: Result) -> None:
    """Add a result to the run; one with the same evaluation, metric and threat is replaced in its place."""
    append_results(run_dir, [result])


def append_results(run_dir: str | Path, results: Iterable[Result]) -> None:
    """Add several results in one write."""
    path = Path(run_dir) / "results.jsonl"
    with _locked(path.with_name(".results.lock")):
        kept = {_identity(old): old for old in read_results(run_dir)}
        kept.update({_identity(new): new for new in results})
        write_text(path, "".join(to_json(result) + "\n" for result in kept.values()))


def read_results(run_dir: str | Path) -> list[Result]:
    """Every result of the run, oldest first; none when it has not been evaluated."""
    return _read_lines(Path(run_dir) / "results.jsonl", from_json)


def read_metrics(run_dir: str | Path) -> list[dict[str, Any]]:
    """Every line of the run's training metrics; none when it was not trained here."""
    return _read_lines(Path(run_dir) / "metrics.jsonl", _mapping)


def _identity(result: Result) -> tuple[Any, ...]:
    return result.evaluation, result.metric, result.threat, result.attack, result.extra.get("column")


def _mapping(line: str) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise UserError(f"expected a JSON object, found {type(value).__name__}")
    return value


def _read_lines(path: Path, parse: Callable[[str], Any]) -> list[Any]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append(parse(line))
        except (ValueError, TypeError) as error:
            # Only a line that lacks its newline can have been cut off by a crash.
            if number == len(lines):
                warnings.warn(f"{path}:{number}: the last line is half-written (a crash?) and was skipped")
                continue
            reason = " ".join(str(error).split())
            raise UserError(f"{path}:{number} is corrupt ({reason}); mend or remove that line") from None
    return values


# ---------------------------------------------------------------- verdicts


def write_verdicts(path: str | Path, columns: Mapping[str, Any]) -> Path:
    """One row per image as parquet. `columns`: name → n numbers, booleans or texts (None allowed)."""
    arrays = {name: _to_arrow(values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"verdict columns differ in length: {lengths}")
    with atomic(path) as file:
        pq.write_table(pa.table(arrays), file, compression="zstd")
    return Path(path)


def read_verdicts(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of a verdict file: name → array of shape (n,)."""
    path = Path(path)
    if not path.is_file():
        near = did_you_mean(path.name, [item.name for item in path.parent.glob("*.parquet")])
        raise UserError(f"there is no verdict file {path}{near}")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid:
        raise UserError(f"{path} is not a readable parquet file; evaluate the run again") from None
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _to_arrow(values: Any) -> pa.Array:
    array = values if isinstance(values, list | tuple) else np.asarray(values)
    if isinstance(array, np.ndarray) and array.dtype.kind in "OUS":
        array = array.tolist()
    arrow = pa.array(array)
    # A chunk in which nothing broke has only None in `broken_by`; it is still a column of texts.
    return arrow.cast(pa.string()) if pa.types.is_null(arrow.type) else arrow


class ChunkStore:
    """The finished chunks of one evaluation, under `verdicts/.<id>/`, until `finish` merges them.

    The id should be a digest of everything that changes the verdicts, so that another evaluation never
    resumes from these chunks. A chunk is named by the first row of the data that it holds, and may have any length.
    """

    def __init__(self, run_dir: str | Path, id: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", id):
            raise UserError(f"evaluation id {id!r} may hold only letters, digits, '.', '_' and '-'")
        self.path = Path(run_dir) / "verdicts" / f"{id}.parquet"
        self.folder = Path(run_dir) / "verdicts" / f".{id}"
        self.images = Path(run_dir) / "adversarial" / id

    def done(self) -> list[int]:
        """First rows of the chunks that are whole on disk, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.parquet"))

    def spans(self) -> list[tuple[int, int]]:
        """(first row, one past the last) of the chunks that are whole on disk, ascending."""
        return [(start, start + pq.read_metadata(self._file(start)).num_rows) for start in self.done()]

    def write(
        self,
        start: int,
        columns: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        images: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Keep one chunk's columns, larger `arrays` (for the gallery) beside them, and the `images` that decided."""
        if arrays:  # before the parquet file, whose presence says that the chunk is whole
            write_arrays(self._file(start, "npz"), arrays)
        if images is not None and len(images["index"]):
            write_arrays(self.images / f"{start:08d}.npz", images, compressed=False)
        write_verdicts(self._file(start), columns)
        self._file(start, "part").unlink(missing_ok=True)

    def _file(self, start: int, kind: str = "parquet") -> Path:
        return self.folder / f"{start:08d}.{kind}"

    def read(self, start: int) -> dict[str, np.ndarray]:
        """The columns of one finished chunk."""
        return read_verdicts(self._file(start))

    def read_all(self) -> dict[str, np.ndarray]:
        """The columns of every finished chunk, joined in the order of their rows."""
        return _join([self.read(start) for start in self.done()])

    def read_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of every finished chunk that has some, joined along their first axis."""
        paths = [self._file(start, "npz") for start in self.done()]
        return _join([read_arrays(path) for path in paths if path.is_file()])

    def notebook(self, start: int, length: int) -> Notebook:
        """Where a chunk that is not finished notes what it has come to."""
        return Notebook(self._file(start, "part"), length)

    def finish(self, path: str | Path | None = None) -> Path:
        """Merge the chunks into one parquet file (default `verdicts/<id>.parquet`) and remove them."""
        columns = self.read_all()
        if not columns:
            raise UserError(f"{self.folder} holds no finished chunk to merge")
        merged = write_verdicts(path or self.path, columns)
        self.discard()
        return merged

    def discard(self) -> None:
        """Forget every chunk, to start over."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Notebook:
    """The state of one unfinished chunk: the latest page, written whole or not at all."""

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length = path, length

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        write_arrays(self.path, {**arrays, "length": np.array(self.length)}, compressed=False)

    def read(self) -> dict[str, np.ndarray] | None:
        """The last page; None where there is none, or it is of a chunk of another length."""
        if not self.path.is_file():
            return None
        arrays = read_arrays(self.path)
        return arrays if int(arrays.pop("length")) == self.length else None


def missing_spans(done: Sequence[tuple[int, int]], total: int, size: int) -> list[tuple[int, int]]:
    """What the finished spans leave of `total` rows, in pieces of at most `size`."""
    missing, at = [], 0
    for start, stop in [*sorted(done), (total, total)]:
        missing += [(first, min(first + size, start)) for first in range(at, start, size)]
        at = max(at, stop)
    return missing


def write_arrays(path: str | Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> Path:
    """An npz, written atomically. Nothing is pickled."""
    with atomic(path) as file:
        plain: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        (np.savez_compressed if compressed else np.savez)(file, **plain)
    return Path(path)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an npz; one that would execute code on loading is refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable npz file of plain arrays ({error})") from None


def _join(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    if not parts:
        return {}
    names = list(parts[0])
    for part in parts:
        if set(part) != set(names):
            raise UserError(f"chunks of one evaluation differ in their columns: {names} and {list(part)}")
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


# ---------------------------------------------------------------- finding runs


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds any of the files a run begins with."""
    return any((Path(folder) / name).is_file() for name in RUN_FILES)


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """The run folders that `paths` name: runs themselves, or folders with runs up to three levels below."""
    found: dict[Path, Path] = {}
    for path in [paths] if isinstance(paths, str | Path) else list(paths):
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise UserError(_no_folder(folder))
        runs = list(_runs_below(folder, SEARCH_DEPTH))
        if not runs:
            raise UserError(f"{folder} holds no run (a folder with {' or '.join(RUN_FILES)}); train or evaluate first")
        found.update({run.resolve(): run for run in runs if run.resolve() not in found})
    if not found:
        raise UserError("no run folder was given; name at least one, for example runs/")
    return list(found.values())


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
