"""Runs a command of hardtack and writes when each piece was handed out and finished.

    python benchmarks/scale_timed.py FILE evaluate RUN suite=clean workers=2

FILE becomes a list of jobs, each a list of [first row, handed out, finished], in seconds since the job began, which is
before its worker processes are started.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardtack.commands.cli import main
from hardtack.engine.executors import here
from hardtack.engine.executors.executor import run_pieces
from hardtack.engine.job import Job
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import Schedule
from hardtack.engine.store import Store

Piece = tuple[int, float, float]
jobs: list[list[Piece]] = []


class TimedSchedule(Schedule):
    """For several workers."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.start = time.monotonic()
        self.begun: dict[Span, float] = {}
        self.pieces: list[Piece] = []
        jobs.append(self.pieces)

    def take(self) -> Span | None:
        span = super().take()
        if span is not None:
            self.begun[span] = time.monotonic() - self.start
        return span

    def finish(self, span: Span) -> None:
        super().finish(span)
        self.pieces.append((span.start, self.begun[span], time.monotonic() - self.start))


def timed_run_pieces(job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
    """For one worker, which is this process."""
    pieces: list[Piece] = []
    run: Any = job.run
    start = time.monotonic()

    def timed(span: Span, inputs: Any, **others: Any) -> Any:
        began = time.monotonic() - start
        result = run(span, inputs, **others)
        pieces.append((span.start, began, time.monotonic() - start))
        return result

    jobs.append(pieces)
    job.run = timed  # type: ignore[method-assign]
    try:
        run_pieces(job, spans, store, quiet=quiet)
    finally:
        del job.run


if __name__ == "__main__":
    here.Schedule = TimedSchedule  # type: ignore[misc]
    here.run_pieces = timed_run_pieces
    code = main(sys.argv[2:])
    rounded = [[(row, round(a, 3), round(b, 3)) for row, a, b in pieces] for pieces in jobs if pieces]
    Path(sys.argv[1]).write_text(json.dumps(rounded))
    sys.exit(code)
