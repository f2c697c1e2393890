"""Executor `torchrun`: the ranks of one launch share out the pieces, and all of them write to one disk."""

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.base.errors import UserError
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor, run_pieces
from hardtack.engine.job import Job
from hardtack.engine.pieces import Span
from hardtack.engine.store import Store


@dataclass(frozen=True, kw_only=True)
class TorchrunSettings:
    """`--on torchrun` has no settings: torchrun's own options say how many processes there are, and where."""


@executors.register("torchrun", help="the processes of one torchrun launch share the pieces")
class Torchrun(Executor):
    """Rank r of n computes the pieces r, r + n, r + 2n, …; rank 0 writes the final files."""

    settings = TorchrunSettings

    def __init__(self, runtime: Runtime, settings: TorchrunSettings | None = None) -> None:
        super().__init__()
        if settings is not None and runtime.world_size == 1:
            raise UserError(
                "--on torchrun shares the work between the processes of one torchrun launch, and this process is "
                "alone; start it as: torchrun --nproc-per-node=4 -m hardtack …"
            )
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
