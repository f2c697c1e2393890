"""The contract Job: what a long computation tells the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hardtack.base.arrays import Columns
from hardtack.base.progress import Meter
from hardtack.engine.pieces import PieceResult, Span
from hardtack.engine.store import Notebook


class Job:
    """A map over `total` rows. Only `total` and `run` have to be written; everything else has a default.

    A row must not depend on the piece it is computed in: whatever is random in it is drawn from its own number.
    """

    total: int  # the number of rows
    title = "job"  # what the progress line says
    unit = "rows"  # what the progress line counts per second
    joins_pieces = True  # False: `finish` gets empty tables and reads large pieces one by one from its store
    root: Path | None = None  # the folder of jobs whose pieces read and write whole folders below it (`folders`)

    def recall(self) -> Any | None:
        """The result of an earlier call that was finished; None where there is none."""
        return None

    def session(self) -> AbstractContextManager[Any]:
        """What holds while pieces are computed: the model on its device, the precision of arithmetic."""
        return contextlib.nullcontext()

    def begin(self) -> None:
        """Prepare for the first piece, in every process that computes some. Not called where the result is recalled."""

    def piece_size(self, most: int) -> int:
        """Rows in one piece; `most` is the share of one worker."""
        return most

    def inputs(self, spans: Sequence[Span]) -> Iterator[Any]:
        """What each piece is computed from, in order: a stream is opened once and read while pieces are computed."""
        return iter([None] * len(spans))

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        """One piece. A long one may keep its state in `notebook` and find it there after a kill."""
        raise NotImplementedError

    def collect(self, span: Span, result: PieceResult) -> None:
        """Take note of a finished piece in the process that keeps it, before it is kept."""

    def expected(self, span: Span) -> float:
        """How long a piece is expected to take, in any unit: long ones are handed out first."""
        return float(span.rows)

    def needs(self, span: Span) -> Sequence[int]:
        """Rows that must be finished before this piece begins."""
        return ()

    def folders(self, span: Span) -> Sequence[Path]:
        """Folders and files below `root` that a piece reads or writes; nothing where pieces travel as values."""
        return ()

    def travels(self, serve: Callable[[Any], Any]) -> Job:
        """This job for a machine with another disk; `serve(images)` is a stand-in that reads images from this one."""
        return self

    def relocate(self, root: Path) -> None:
        """Work below another folder than `root`, on a machine with another disk."""
        self.root = root

    def finish(self, columns: Columns, arrays: Columns, *, is_main: bool) -> Any:
        """The result, from the rows of all pieces. Final files are written by the main process only."""
        return columns, arrays
