"""Executor `slurm`: the pieces of a job as tasks of a Slurm job array, on machines that share a disk.

The driver (this process, on a login node) cuts the job into pieces, submits an array whose tasks are the user's own
command line (`task.py`), watches it, submits again what was pre-empted, timed out or killed, and writes the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.base.printable import printable
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor
from hardtack.engine.executors.task import VARIABLE, TaskDone, read_report, report_path, write_tasks
from hardtack.engine.job import Job
from hardtack.engine.pieces import PieceResult, Span
from hardtack.engine.slurm import SlurmSettings, Task, describe_array, run_array
from hardtack.engine.store import PieceStore, Store

PIECES_PER_TASK = 2  # a task that is stopped loses one of them at the most


@dataclass(frozen=True, kw_only=True)
class SlurmExecutorSettings(SlurmSettings):
    """Settings of `--on slurm`: those of the jobs, and

    workers   tasks of the array that share the pieces of one job; units of a study have a task each
    dry_run   print the scripts and submit nothing (also `--dry-run`)
    poll_s    seconds between two looks at the queue
    """

    workers: Annotated[int, Field(ge=1)] = 4
    dry_run: bool = False
    poll_s: Annotated[float, Field(gt=0)] = 5.0


@executors.register("slurm", help="tasks of a Slurm job array, on machines that share a disk")
class SlurmExecutor(Executor):
    """Every wave of pieces is one array: a piece waits until those that it needs are finished."""

    settings = SlurmExecutorSettings
    pieces_per_worker = PIECES_PER_TASK

    def __init__(self, runtime: Runtime, settings: SlurmExecutorSettings | None = None) -> None:
        super().__init__()
        self.chosen = settings or SlurmExecutorSettings()
        if self.chosen.nodes > 1:
            raise UserError("slurm.nodes is for train; here every task runs on one node, and workers=N says how many")
        self.workers = self.chosen.workers
        self.command: tuple[str, ...] = ()  # the words that repeat this command without --on

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        if not spans:
            return
        if not self.command or store.key == "":
            raise UserError("--on slurm repeats a command line on other machines, and keeps its pieces in a folder")
        folder = Path(store.scratch).resolve() / "slurm"
        for number, wave in enumerate(waves(job.needs, spans)):
            self._run_wave(job, wave, store, folder / f"wave-{number}", quiet=quiet)

    def _run_wave(self, job: Job, spans: Sequence[Span], store: Store, folder: Path, *, quiet: bool) -> None:
        count = min(self.workers, len(spans)) if isinstance(store, PieceStore) else len(spans)
        parts = [list(spans[number::count]) for number in range(count)]
        tasks = [self._task(job, number, part, folder) for number, part in enumerate(parts)]
        if self.chosen.dry_run:
            print(describe_array(tasks, self.chosen, folder=folder, title=job.title))
            raise TaskDone(0)
        if not isinstance(store, PieceStore):
            for span in spans:  # reports of an earlier call: units are asked again, and what is measured is recalled
                report_path(folder, span).unlink(missing_ok=True)
        write_tasks(folder / "tasks.json", store, parts, self.steps())
        by_task = dict(zip([task.label for task in tasks], parts, strict=True))

        def is_done(task: Task) -> bool:
            written = set(store.spans()) if isinstance(store, PieceStore) else None
            return all(
                report_path(folder, span).is_file() and (written is None or span in written)
                for span in by_task[task.label]
            )

        tell = _silent if quiet else _tell
        run_array(
            tasks, self.chosen, folder=folder, is_done=is_done, tell=tell, poll_s=self.chosen.poll_s, title=job.title
        )
        for span in spans:
            self._collect(job, span, report_path(folder, span))
            if not isinstance(store, PieceStore):  # what was measured is on disk; the store counts the pieces
                store.write(span, PieceResult())

    def _task(self, job: Job, number: int, part: Sequence[Span], folder: Path) -> Task:
        rows = f"{part[0].start}" if len(part) == 1 and part[0].rows == 1 else f"{part[0].start}-{part[-1].stop - 1}"
        command = (sys.executable, "-m", "hardtack", *self.command)
        environment = {VARIABLE: f"{folder / 'tasks.json'}#{number}"}
        return Task(label=f"{job.unit} {rows}", command=command, env=environment)

    @staticmethod
    def _collect(job: Job, span: Span, path: Path) -> None:
        try:
            job.collect(span, PieceResult(report=read_report(path)))
        except (LookupError, TypeError, AttributeError, ValueError, OSError) as error:  # a UserError is a ValueError
            reason = shorten(" ".join(str(error).split()))
            raise UserError(f"{path} is damaged ({reason}); delete {path.parent} and repeat the command") from None


def waves(needs: Callable[[Span], Sequence[int]], spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Pieces whose needs are finished, then those that needed them, and so on."""
    left = list(spans)
    while left:
        rows = {row for span in left for row in range(*span)}
        ready = [span for span in left if not any(row in rows for row in needs(span))]
        if not ready:
            raise RuntimeError(f"the pieces {left[:3]} need each other")
        yield ready
        left = [span for span in left if span not in ready]


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _silent(line: str) -> None:
    """For quiet calls."""
