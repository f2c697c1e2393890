"""Paths of a million files in one column of bytes: a Path object takes ten times as much memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

_CHUNK = 4096  # paths that are Python objects at the same time


class PathColumn:
    """A sequence of paths that cannot be changed."""

    def __init__(self, paths: Iterable[Path]) -> None:
        left, chunks = iter(paths), []
        while part := [os.fsencode(path) for path in itertools.islice(left, _CHUNK)]:
            chunks.append(pa.array(part, pa.large_binary()))  # bytes: names need not be valid Unicode
        self.column = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: int) -> Path:
        return Path(os.fsdecode(self.column[index].as_py()))

    def __iter__(self) -> Iterator[Path]:
        return (self[index] for index in range(len(self)))
