"""The store: finished pieces of a job on disk, until the job's final files replace them.

A job with the id `pgd-0123456789ab` keeps its pieces in the hidden folder `.pgd-0123456789ab`:

    00000000-00000256.parquet   one value per row (jobs with columns)
    00000000-00000256.npz       arrays
    00000256-00000512.part      notes of a piece that is not finished
    job.json                    title and size of the job, for those who look on (`hardtack watch`)
    scratch/                    whatever the job itself wants to find again

Every file is written whole and renamed into place. The parquet file of a piece (or the npz file, for a job without
columns) is written last: its presence says that the piece is complete.

Version 0.1.0 named the files of an evaluation by their first row only (`00000000.parquet`, `.npz`, `.part`); those are
read too. Its analyses used the names above.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hardtack.base.arrays import Columns, count_rows, read_arrays, read_columns, write_arrays, write_columns
from hardtack.base.errors import UserError
from hardtack.base.files import atomic, write_text
from hardtack.base.lock import JobLock, JobLocks
from hardtack.base.printable import printable
from hardtack.engine.identity import check_id
from hardtack.engine.pieces import PieceResult, Span, join_pieces, without_overlap

ANNOUNCEMENT = "job.json"


class Notebook:
    """The state of one unfinished piece. `write` replaces the last state, `read` gives it back."""

    def __init__(self, path: Path, length: int, *, older: Path | None = None) -> None:
        self.path, self.length, self._older = path, length, older

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        write_arrays(self.path, {**arrays, "length": np.array(self.length)}, compressed=False)

    def read(self) -> dict[str, np.ndarray] | None:
        """The last state; None where there is none, where it is damaged, or where the piece had another length."""
        for path in (self.path, self._older):
            if path is not None and zipfile.is_zipfile(path):
                try:
                    arrays = read_arrays(path)
                except UserError:
                    continue
                if int(arrays.pop("length", np.array(-1))) == self.length:
                    return arrays
        return None


class MemoryStore:
    """Pieces of a job whose result is not kept: the same interface as `PieceStore`, without a disk."""

    shared = False  # between processes
    key = ""  # what names the job to other processes
    scratch = Path()

    def __init__(self) -> None:
        self._pieces: list[tuple[Span, PieceResult]] = []

    def spans(self) -> list[Span]:
        return [span for span, _ in self._pieces]

    def write(self, span: Span, result: PieceResult) -> None:
        self._pieces.append((span, result))

    def notebook(self, span: Span) -> Notebook | None:
        return None

    def announce(self, title: str, unit: str, *, total: int, done: int) -> None:
        """Nobody can look on."""

    def read(self) -> tuple[Columns, Columns]:
        return join_pieces(self._pieces)

    def lock(self, title: str) -> JobLock | JobLocks | None:
        return None

    def discard(self) -> None:
        self._pieces = []


class PieceStore:
    """Pieces of the job `id` in the hidden folder `home/.id`; finished files of pieces go below `root`."""

    shared = True

    def __init__(self, home: str | Path, id: str, *, columns: bool = True, root: str | Path | None = None) -> None:
        self.folder, self.root = Path(home) / f".{check_id(id)}", Path(root if root is not None else home)
        self.scratch = self.folder / "scratch"
        self.last = "parquet" if columns else "npz"  # the file that is written last
        self._reported: set[Path] = set()

    @property
    def key(self) -> str:
        """What names the job to other processes that share the disk."""
        return self.folder.name

    def spans(self) -> list[Span]:
        """The pieces that are complete on disk, in the order of their rows; damaged ones are named and left out."""
        spans = []
        for path in sorted(self.folder.glob(f"[0-9]*.{self.last}")):
            span = self._span_of(path)
            if span is None or not self._is_sound(path, span):
                self._report_damage(path)
            else:
                spans.append(span)
        return sorted(set(spans))

    def write(self, span: Span, result: PieceResult) -> None:
        """Keep one piece; the file that says it is complete comes last."""
        for name, content in result.files.items():
            self._write_file(self.root / name, content)
        if result.arrays and self.last != "npz":
            write_arrays(self._file(span, "npz"), result.arrays)
        if self.last == "npz":
            write_arrays(self._file(span, "npz"), result.arrays, compressed=False)
        else:
            write_columns(self._file(span, "parquet"), result.columns)
        for path in (self._file(span, "part"), self._older_file(span, "part")):
            path.unlink(missing_ok=True)

    def notebook(self, span: Span) -> Notebook | None:
        """Where a piece that is not finished notes what it has come to."""
        return Notebook(self._file(span, "part"), span.rows, older=self._older_file(span, "part"))

    def announce(self, title: str, unit: str, *, total: int, done: int) -> None:
        """Say what is being computed, since when, and how many rows were `done` before."""
        facts = {"title": title, "unit": unit, "total": total, "done": done, "began": round(time.time(), 3)}
        write_text(self.folder / ANNOUNCEMENT, json.dumps(facts) + "\n")

    def read(self) -> tuple[Columns, Columns]:
        """Columns and arrays of all complete pieces, in the order of their rows."""
        return join_pieces([(span, self._read_piece(span)) for span in self.spans()])

    def pieces(self) -> Iterator[tuple[Span, PieceResult]]:
        """The complete pieces one by one in the order of their rows; every row occurs once."""
        return without_overlap((span, self._read_piece(span)) for span in self.spans())

    def lock(self, title: str) -> JobLock | None:
        """The lock of whoever computes this job; None where nobody else can."""
        return JobLock(self.folder.with_name(f"{self.folder.name}.lock"), title)

    def discard(self) -> None:
        """Forget all pieces."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read_piece(self, span: Span) -> PieceResult:
        file = self._file if self._file(span, self.last).is_file() else self._older_file
        try:
            columns = read_columns(file(span, "parquet")) if self.last == "parquet" else {}
            arrays = read_arrays(file(span, "npz")) if file(span, "npz").is_file() else {}
        except UserError as error:
            file(span, self.last).unlink(missing_ok=True)
            message = f"{error}; the piece was removed. Repeat the command: only this piece is computed again"
            raise UserError(message) from None
        return PieceResult(columns=columns, arrays=arrays)

    def _span_of(self, path: Path) -> Span | None:
        """From the file's name; version 0.1.0 had only the first row there. None if the file is unreadable."""
        if match := re.fullmatch(r"(\d+)-(\d+)", path.stem):
            return Span(int(match[1]), int(match[2]))
        if not path.stem.isdecimal() or (rows := count_rows(path)) is None:
            return None
        return Span(int(path.stem), int(path.stem) + rows)

    def _is_sound(self, path: Path, span: Span) -> bool:
        """Whether the files of a piece are whole, as far as their ends show."""
        arrays = path.with_suffix(".npz")
        if self.last == "parquet" and count_rows(path) != span.rows:
            return False
        return zipfile.is_zipfile(arrays) if arrays.is_file() else True

    def _report_damage(self, path: Path) -> None:
        if path not in self._reported:
            self._reported.add(path)
            print(printable(f"{path} is damaged; its rows are computed again"), file=sys.stderr)

    def _file(self, span: Span, kind: str) -> Path:
        return self.folder / f"{span}.{kind}"

    def _older_file(self, span: Span, kind: str) -> Path:
        return self.folder / f"{span.start:08d}.{kind}"

    @staticmethod
    def _write_file(path: Path, content: bytes | Mapping[str, np.ndarray]) -> None:
        if isinstance(content, bytes):
            with atomic(path) as file:
                file.write(content)
        else:
            write_arrays(path, content, compressed=False)


Store = PieceStore | MemoryStore
