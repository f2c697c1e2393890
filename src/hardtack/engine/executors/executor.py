"""The contract Executor: where the pieces of a job run."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.base.progress import Meter
from hardtack.engine.job import Job
from hardtack.engine.pieces import Span
from hardtack.engine.store import Store


class Executor:
    """One process that computes every piece itself; other executors replace what differs.

    An executor that sends pieces to other machines replaces `run`: it must have written every span to the store when
    `run` returns. Results never depend on the executor.
    """

    workers: int = 1  # how many share the pieces
    is_main: bool = True  # whether this process writes the final files

    def join(self) -> None:
        """Meet the other processes, where there are any."""

    def wait(self) -> None:
        """Return when every process has come this far."""

    def share(self, value: bool) -> bool:
        """The main process's value, in every process."""
        return value

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        """Compute these pieces and write them to the store."""
        run_pieces(job, spans, store, quiet=quiet)


def run_pieces(job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
    """Compute pieces in this process, one after the other; each is written to the store as soon as it is finished."""
    with Meter(job.title, total=len(spans), quiet=quiet, unit=job.unit) as meter:
        for span, inputs in zip(spans, job.inputs(spans), strict=True):
            store.write(span, job.run(span, inputs, notebook=store.notebook(span), meter=meter))
            meter.advance(span.rows)
