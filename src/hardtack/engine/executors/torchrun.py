"""Executor `torchrun`: the ranks of one launch share out the pieces, and all of them write to one disk."""

from collections.abc import Sequence

from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor, run_pieces
from hardtack.engine.job import Job
from hardtack.engine.pieces import Span
from hardtack.engine.store import Store


@executors.register("torchrun", help="the processes of one torchrun launch share the pieces")
class Torchrun(Executor):
    """Rank r of n computes the pieces r, r + n, r + 2n, …; rank 0 writes the final files."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.workers, self.rank, self.is_main = runtime.world_size, runtime.rank, runtime.is_main

    def join(self) -> None:
        self.runtime.join()

    def wait(self) -> None:
        self.runtime.wait()

    def share(self, value: bool) -> bool:
        return self.runtime.share(value)

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        run_pieces(job, spans[self.rank :: self.workers], store, quiet=quiet or not self.is_main)
