"""The images of parquet files: held in memory where they are few, else read a row group at a time.

Of a remote file the end and the column of labels are read by ranges; it is fetched whole when the first of its images
is read.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardtack.base.errors import UserError
from hardtack.base.limits import check_unpacked, shorten
from hardtack.data.decode import decode_bytes
from hardtack.data.remote import Place, RemotePath, local_file
from hardtack.data.remote.ranges import open_ranges

T = TypeVar("T")
_FILES = 8  # files that are opened at the same time
_BATCH = 64  # rows that are unpacked together
_KEPT_IMAGES = 2048  # about so many encoded images each process keeps while it reads at random


class HeldBytes:
    """Encoded images in memory, for sets whose files fit: the faster way."""

    def __init__(self, files: Sequence[Place], column: str) -> None:
        self.files = files
        # 64-bit offsets: a plain binary array ends at 2 GiB
        chunks = [chunk.cast(pa.large_binary()) for file in files for chunk in _encoded_images(file, column)]
        self.data = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())

    def __len__(self) -> int:
        return len(self.data)

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        return _present(self.data[index].as_py(), self.where(index))

    def where(self, index: int) -> str:
        return f"row {index} of {self.files[0]}{' …' if len(self.files) > 1 else ''}"


class RowGroups:
    """Encoded images read a row group at a time, for sets that do not fit; `kept` groups are kept.

    Training shuffles the groups, and the images of as many groups as are kept (see `sampler`): reading one image in a
    wholly random order would read its whole group again and again.
    """

    def __init__(self, files: Sequence[Place], column: str) -> None:
        self.column = column
        self.groups: list[tuple[Place, int]] = []
        self.starts: list[int] = []  # of each group, the row of its first image in its file
        sizes: list[int] = []
        for file, rows in zip(files, for_each_file(_group_rows, files), strict=True):
            self.groups += [(file, number) for number in range(len(rows))]
            self.starts += itertools.accumulate(rows[:-1], initial=0) if rows else []
            sizes += rows
        self.ends = np.cumsum(sizes)
        self.kept = min(32, max(2, _KEPT_IMAGES // max(1, int(np.mean(sizes)) if sizes else 1)))
        self.held: dict[int, Any] = {}
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("held", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, held={}, lock=threading.Lock())  # another process reads its own

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        group, row = self._find(index)
        return _present(self._group(group)[row].as_py(), self.where(index))

    def version(self, index: int) -> str | None:
        group, row = self._find(index)
        file = self.groups[group][0]
        return f"{file.version.text}:{self.starts[group] + row}" if isinstance(file, RemotePath) else None

    def _find(self, index: int) -> tuple[int, int]:
        """The row group of an image, and its row in it."""
        group = int(np.searchsorted(self.ends, index, side="right"))
        return group, index - (int(self.ends[group - 1]) if group else 0)

    def _group(self, number: int) -> Any:
        """The bytes of one row group; those used last are kept. One thread reads a group, and others wait for it."""
        with self.lock:
            group = self.held.pop(number, None)
            if group is None:
                file, place = self.groups[number]
                for old in list(self.held)[: max(0, len(self.held) + 1 - self.kept)]:
                    del self.held[old]
                chunks = [chunk.cast(pa.large_binary()) for chunk in _encoded_images(file, self.column, group=place)]
                group = pa.concat_arrays(chunks)
            self.held[number] = group
            return group

    def where(self, index: int) -> str:
        return f"row {index} of {self.groups[0][0]}{' …' if len(self.groups) > 1 else ''}"


def _present(data: bytes | None, where: str) -> bytes:
    if data is None:
        raise UserError(f"{where} has no bytes (only a path?); store the images themselves")
    return data


def _encoded_images(place: Place, column: str, *, group: int | None = None) -> Iterator[pa.Array]:
    """The bytes of the images of a file, or of one row group, in batches; refuses a file that unpacks to far more."""
    size, file = 0, local_file(place)
    try:
        with pq.ParquetFile(file) as opened:
            groups = None if group is None else [group]
            for batch in opened.iter_batches(_BATCH, row_groups=groups, columns=[f"{column}.bytes"]):
                size += batch.nbytes
                check_unpacked(file, size)
                yield batch.column(0).field("bytes")
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UserError(f"{file} cannot be read: {shorten(error, 200)}") from None


def for_each_file(work: Callable[[Place], T], files: Sequence[Place]) -> list[T]:
    """Of many files at the same time: a remote one takes several requests."""
    with ThreadPoolExecutor(max_workers=_FILES) as pool:
        return list(pool.map(work, files))


@contextlib.contextmanager
def opened_parquet(file: Place) -> Iterator[pq.ParquetFile]:
    """A parquet file whose schema or labels are read: of a remote one only the ranges that hold them are fetched."""
    with open_ranges(file) as source, pq.ParquetFile(source) as opened:
        yield opened


def _group_rows(file: Place) -> list[int]:
    """Rows of each row group."""
    try:
        with opened_parquet(file) as opened:
            return [opened.metadata.row_group(number).num_rows for number in range(opened.metadata.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read: {shorten(error, 200)}") from None
