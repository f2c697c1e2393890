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
    """Settings of `--on slurm`: those of the jobs, and those of the array.

    workers   tasks of the array that share the pieces of one job; units of a study have a task each
    dry_run   print the scripts and submit nothing, as --dry-run does
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
        folder = Path(store.scratch).resolve() / "slurm"
        complete = store.spans()
        finished = {span for span in complete if self._is_collected(job, span, store, folder)}
        missing = {*spans, *complete} - finished
        if not missing:
            return
        if not self.command or store.key == "":
            raise UserError("--on slurm repeats a command line on other machines, and keeps its pieces in a folder")
        # tasks are cut from all pieces: the same command finds its array in the queue, whatever is finished by then
        for number, wave in enumerate(waves(job.needs, sorted({*finished, *missing}))):
            if not missing.isdisjoint(wave):
                self._run_wave(job, wave, finished, store, folder / f"wave-{number}", quiet=quiet)

    def _is_collected(self, job: Job, span: Span, store: Store, folder: Path) -> bool:
        """Collect the report of a complete piece: an earlier driver may have ended before it read it.

        A piece without a report was collected by whoever computed it. A piece whose report is damaged may have had
        flags that are lost: it is removed.
        """
        reports = [path for wave in sorted(folder.glob("wave-*")) if (path := report_path(wave, span)).is_file()]
        try:
            for path in reports[:1]:
                self._collect(job, span, path)
        except UserError as error:
            _tell(f"{error}; its rows are computed again")
            pieces = [store.folder / f"{span}.{store.last}"] if isinstance(store, PieceStore) else []
            for path in [*reports, *pieces]:
                path.unlink(missing_ok=True)
            return False
        return True

    def _run_wave(
        self, job: Job, spans: Sequence[Span], finished: set[Span], store: Store, folder: Path, *, quiet: bool
    ) -> None:
        count = min(self.workers, len(spans)) if isinstance(store, PieceStore) else len(spans)
        parts = [list(spans[number::count]) for number in range(count)]
        tasks = [self._task(job, number, part, folder) for number, part in enumerate(parts)]
        if self.chosen.dry_run:
            print("# the first array of this command; whatever follows (other suites, an audit) is submitted after it")
            print(describe_array(tasks, self.chosen, folder=folder, title=job.title))
            raise TaskDone(0)
        by_task = dict(zip([task.label for task in tasks], parts, strict=True))

        def prepare() -> None:
            if not isinstance(store, PieceStore):
                for span in spans:  # of an earlier call: units are asked again, and what is measured is recalled
                    report_path(folder, span).unlink(missing_ok=True)
            write_tasks(folder / "tasks.json", store, parts, self.steps())

        def is_done(task: Task) -> bool:
            written = set(store.spans()) if isinstance(store, PieceStore) else None
            return all(
                report_path(folder, span).is_file() and (written is None or span in written)
                for span in by_task[task.label]
                if span not in finished
            )

        tell = _silent if quiet else _tell
        run_array(
            tasks, self.chosen, folder=folder, is_done=is_done, tell=tell, poll_s=self.chosen.poll_s, title=job.title,
            prepare=prepare,
        )  # fmt: skip
        for span in spans:
            if span in finished:
                continue
            path = report_path(folder, span)
            try:
                self._collect(job, span, path)
            except UserError as error:
                raise UserError(f"{error}; repeat the command, and its rows are computed again") from None
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
        # a UserError is a ValueError; numbers in JSON may be too large to add
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, OSError) as error:
            reason = shorten(" ".join(str(error).split()))
            raise UserError(f"{path} is damaged ({reason})") from None


def waves(needs: Callable[[Span], Sequence[int]], spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Pieces whose needs are finished, then those that needed them, and so on."""
    left = list(spans)
    while left:
        rows = {row for span in left for row in range(*span)}
        ready = [span for span in left if not any(row in rows for row in needs(span))]
        if not ready:
            raise RuntimeError(f"the pieces {left[:3]} need each other")
        yield ready
        taken = set(ready)
        left = [span for span in left if span not in taken]


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _silent(line: str) -> None:
    """For quiet calls."""
