"""What a job of the engine will cost: a few of its rows are computed, in a temporary folder, and the rest follows.

For jobs whose rows take about as long as each other: analyses, corrupted copies. Evaluations have plans of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hardtack.base.arrays import Columns
from hardtack.base.cost import duration, text_table
from hardtack.base.errors import UserError
from hardtack.base.instruments import Load, Stopwatch, busy_note, slower_now
from hardtack.base.progress import Meter
from hardtack.engine.job import Job
from hardtack.engine.pieces import PieceResult, Span
from hardtack.engine.store import Store

ROWS_S = 4.0  # for the rows of a job that are tried


class JobTimes(NamedTuple):
    """Seconds of a job, and the memory of its pieces. `tried` of its rows were computed."""

    begin_s: float
    setup_s: float  # once, of the first rows
    rows_s: float
    finish_s: float
    tried: int
    memory_mb: float
    finished: bool = True  # whether the end could be tried


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """The cost of one or more jobs, by the name of each: the files of a copy, or one analysis."""

    title: str
    device: str
    unit: str
    rows: int
    jobs: tuple[tuple[str, JobTimes], ...]
    start_s: float = 0.0
    other_s: float = 0.0  # beside the jobs
    disk_mb: float = 0.0
    on_gpu: bool = False
    load: Load = field(default_factory=Load)
    plan_s: float = 0.0

    @property
    def begin_s(self) -> float:
        return sum(times.begin_s + times.setup_s for _, times in self.jobs)

    @property
    def rows_s(self) -> float:
        return sum(times.rows_s for _, times in self.jobs)

    @property
    def finish_s(self) -> float:
        return sum(times.finish_s for _, times in self.jobs) + self.other_s

    @property
    def total_s(self) -> float:
        return self.start_s + self.begin_s + self.rows_s + self.finish_s

    @property
    def range_s(self) -> tuple[float, float]:
        """The work does not depend on what is found."""
        return self.total_s, self.total_s

    @property
    def memory_mb(self) -> float:
        return max((times.memory_mb for _, times in self.jobs), default=0.0)

    def __str__(self) -> str:
        tried, of = sum(times.tried for _, times in self.jobs), "of the process, with Python and torch"
        of = "of torch's tensors on the GPU" if self.on_gpu else of
        lines = [
            f"plan: {self.title}",
            f"  {self.device}: {tried:,} {self.unit} tried, {len(self.jobs) * self.rows / max(self.rows_s, 1e-9):,.3g} "
            f"{self.unit}/s",
            f"  memory: {self.memory_mb:,.0f} MB, the peak {of}",
        ]
        parts = {
            "start and end: imports, data, model": self.start_s, "beginning, first calls": self.begin_s,
            f"{len(self.jobs) * self.rows:,} {self.unit}": self.rows_s, "results": self.finish_s,
        }  # fmt: skip
        rows = [("total", "time"), *((name, duration(part)) for name, part in parts.items() if part >= 0.05)]
        lines += ["", *text_table([*rows, ("sum", duration(self.total_s))]), *self._notes()]
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        lines = [f"disk: about {self.disk_mb:,.1f} MB"] if self.disk_mb else []
        if not all(times.finished for _, times in self.jobs):
            lines.append("the end needs all rows and was not tried")
        if note := busy_note(self.load):
            factor = slower_now(self.load)
            now = f"; times are those of an idle machine, and now it takes {factor:.2g} × as long"
            lines.append(note + (now if factor > 1.05 and not self.on_gpu else "; plan again when it is idle"))
        return [f"  {line}" for line in [*lines, f"planning took {duration(self.plan_s)}"]]


def rehearse(job: Job, store: Store, watch: Stopwatch, *, made_s: float = 0.0, rows_s: float = ROWS_S) -> JobTimes:
    """Try a job whose store is temporary. `made_s`: what making it has taken; `rows_s`: for the rows that are tried."""
    began = watch.now()
    with job.session():
        job.begin()
        begin_s, piece = made_s + watch.since(began), max(1, min(job.piece_size(job.total), job.total))
        trial = _Trial(job, store, watch)
        first_s, one_s = watch.steady(lambda: trial.run(Span(0, 1)))
        one_mb = watch.instruments.peak_mb(watch.device)
        width = min(piece, max(2, int(rows_s / 2 / max(one_s, 1e-9))))
        several = [one_s]
        if width > 1:
            first_wide_s = watch.time(lambda: trial.run(Span(0, width)))
            several = [watch.time(lambda: trial.run(Span(0, width)))] if first_wide_s < rows_s / 2 else [first_wide_s]
        several += [watch.time(lambda at=at: trial.run(at)) for at in _spread(job.total, width, several[0], rows_s)]  # type: ignore[misc]
        wide_mb = watch.instruments.peak_mb(watch.device)
        wide_s = float(np.mean(several))
        each_s = (wide_s - one_s) / (width - 1) if width > 1 else wide_s
        piece_s = wide_s + max(0.0, each_s) * (piece - width)
        memory_mb = wide_mb + max(0.0, wide_mb - one_mb) / max(width - 1, 1) * (piece - width)
        finish_s = trial.finish()
    return JobTimes(
        begin_s, max(0.0, first_s - one_s), piece_s * job.total / piece, finish_s or 0.0, width * len(several),
        memory_mb, finish_s is not None,
    )  # fmt: skip


def _spread(total: int, width: int, seconds: float, budget_s: float) -> Sequence[Span]:
    """Further pieces from all over the rows, as many as the time allows: rows may differ."""
    count = min(int(budget_s / 2 / max(seconds, 1e-9)), total // width - 1, 8)
    starts = np.linspace(width, total - width, max(count, 0)).astype(int).tolist() if count > 0 else []
    return [Span(start, start + width) for start in starts]


class _Trial:
    def __init__(self, job: Job, store: Store, watch: Stopwatch) -> None:
        self.job, self.store, self.watch, self.last = job, store, watch, (Span(0, 0), PieceResult())

    def run(self, span: Span) -> None:
        inputs = next(iter(self.job.inputs([span])))
        quiet = Meter("", total=span.rows, quiet=True)
        result = self.job.run(span, inputs, notebook=None, meter=quiet)
        self.store.write(span, result)
        if span.rows >= self.last[0].rows:
            self.last = span, result

    def finish(self) -> float | None:
        """The end of the job, as if all rows were like the tried ones; None where it cannot be tried so."""
        span, result = self.last
        share = self.job.total / max(span.rows, 1)
        self.store.discard()
        self.store.write(Span(0, span.rows), result)
        columns, arrays = (self._all(part, span.rows) for part in (result.columns, result.arrays))
        began = self.watch.now()
        try:
            self.job.finish(columns, arrays, is_main=True)
        except (UserError, ValueError, KeyError, IndexError):  # repeated rows are no result
            return None
        return self.watch.since(began) * (1 if self.job.joins_pieces else share)

    def _all(self, part: Mapping[str, np.ndarray], rows: int) -> Columns:
        whole = {name: np.asarray(values) for name, values in part.items()}
        return {
            name: np.resize(values, (self.job.total, *values.shape[1:])) if len(values) == rows else values
            for name, values in whole.items()
        }
