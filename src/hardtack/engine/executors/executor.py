"""The contract Executor: where the pieces of a job run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from hardtack.base.progress import Meter
from hardtack.engine.job import Job
from hardtack.engine.packing import Step
from hardtack.engine.pieces import Span
from hardtack.engine.store import Store


class Executor:
    """One process that computes every piece itself; other executors replace what differs.

    An executor that sends pieces to other processes replaces `prepare` and `run`: it must have written every span to
    the store when `run` returns. Results never depend on the executor. It is used as a context manager by whoever made
    it; workers are kept between the jobs of one command.
    """

    workers: int = 1  # how many share the pieces
    pieces_per_worker: int = 1  # where pieces are handed out one by one, several for each even out their times
    is_main: bool = True  # whether this process writes the final files
    takes_lock: bool = True  # whether the main process holds the lock of the job while it runs

    def __init__(self) -> None:
        self.steps: Callable[[], Sequence[Step]] = tuple  # what a worker must do before it can receive a job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """In a worker, a job that starts another job computes it there."""
        return Executor, ()

    def close(self) -> None:
        """End all workers."""

    def join(self) -> None:
        """Meet the other processes, where there are any."""

    def wait(self) -> None:
        """Return when every process has come this far."""

    def share(self, value: bool) -> bool:
        """The main process's value, in every process."""
        return value

    def prepare(self, job: Job) -> None:
        """See a job before its session and `begin`: that is how workers receive it."""

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        """Compute these pieces and write them to the store."""
        run_pieces(job, spans, store, quiet=quiet)


def run_pieces(job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
    """Compute pieces in this process, one after the other; each is written to the store as soon as it is finished."""
    with Meter(job.title, total=len(spans), quiet=quiet, unit=job.unit) as meter:
        for span, inputs in zip(spans, job.inputs(spans), strict=True):
            result = job.run(span, inputs, notebook=store.notebook(span), meter=meter)
            job.collect(span, result)
            store.write(span, result)
            meter.advance(span.rows)
