"""Executor `together`: all ranks of one launch compute every piece together, one piece after the other."""

from collections.abc import Sequence

from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import run_pieces
from hardtack.engine.executors.torchrun import Torchrun
from hardtack.engine.job import Job
from hardtack.engine.pieces import Span
from hardtack.engine.store import Store


@executors.register("together", help="all processes of one torchrun launch compute each piece together")
class Together(Torchrun):
    """For pieces that are themselves shared by the ranks: a training run, an evaluation."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.workers = 1

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        run_pieces(job, spans, store, quiet=quiet or not self.is_main)
