"""Pieces: spans of rows that are computed together, and the question which of them are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hardtack.base.arrays import Columns, join_columns


class Span(NamedTuple):
    """Rows `start` … `stop` − 1."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.start:08d}-{self.stop:08d}"


@dataclass(frozen=True, kw_only=True)
class PieceResult:
    """What one piece came to.

    columns   one value per row, by name
    arrays    larger arrays; the first axis runs over the first rows of the piece, not necessarily over all of them
    files     finished files, path below the job's folder → bytes, or arrays by name for an npz
    report    what the main process is told about the piece (`Job.collect`): plain values that JSON can hold
    """

    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Mapping[str, bytes | Mapping[str, Any]] = field(default_factory=dict)
    report: Any = None


def missing_spans(done: Sequence[tuple[int, int]], total: int, size: int) -> list[Span]:
    """What the finished spans leave of `total` rows, in pieces of at most `size` rows."""
    missing, at = [], 0
    for start, stop in [*sorted(done), (total, total)]:
        missing += [Span(first, min(first + size, start)) for first in range(at, start, size)]
        at = max(at, stop)
    return missing


def join_pieces(pieces: Sequence[tuple[Span, PieceResult]]) -> tuple[Columns, Columns]:
    """Columns and arrays of all pieces in the order of their rows; of a row computed twice the first piece counts.

    Pieces overlap where two processes ran the same job at the same time with different piece sizes.
    """
    parts = [part for _, part in without_overlap(sorted(pieces, key=lambda piece: piece[0]))]
    return join_columns([part.columns for part in parts]), join_columns([part.arrays for part in parts if part.arrays])


def without_overlap(pieces: Iterable[tuple[Span, PieceResult]]) -> Iterator[tuple[Span, PieceResult]]:
    """Pieces in the order of their rows, each without the rows that a piece before it holds."""
    at = 0
    for span, result in pieces:
        skip = max(at - span.start, 0)
        if skip < span.rows:
            columns = {name: value[skip:] for name, value in result.columns.items()}
            arrays = {name: value[skip:] for name, value in result.arrays.items()}
            yield Span(span.start + skip, span.stop), PieceResult(columns=columns, arrays=arrays)
            at = span.stop
