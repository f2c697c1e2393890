"""Executor `task`: one task of a job array computes its pieces of a job that another process drives.

The driver writes `tasks.json` beside the pieces: which store, which spans for which task, its versions and digests of
the user's files. A task is the user's own command line, with `HARDTACK_TASK=…/tasks.json#3` in its environment. It runs
until it meets the store that is named there, computes its pieces, writes them to the shared disk and ends. Nothing but
JSON is read from the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.base.progress import Meter
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor
from hardtack.engine.job import Job
from hardtack.engine.packing import Step, check_versions, versions
from hardtack.engine.pieces import Span
from hardtack.engine.store import PieceStore, Store

VARIABLE = "HARDTACK_TASK"


class TaskList(TypedDict):
    """The contents of `tasks.json`."""

    store: str
    versions: dict[str, str]
    files: dict[str, str]
    spans: list[list[tuple[int, int]]]


def write_tasks(path: Path, store: Store, spans: Sequence[Sequence[Span]], steps: Sequence[Step]) -> None:
    """What the tasks of an array need to know."""
    tasks: TaskList = {
        "store": store.key, "versions": versions(), "files": file_digests(steps),
        "spans": [[(span.start, span.stop) for span in part] for part in spans],
    }  # fmt: skip
    write_text(path, json.dumps(tasks, indent=1) + "\n")


def report_path(folder: Path, span: Span) -> Path:
    """Where a task writes what the driver is told about a piece."""
    return folder / f"{span}.json"


def file_digests(steps: Sequence[Step]) -> dict[str, str]:
    """Digests of the user's files that were run, by name."""
    digests: dict[str, str] = {}
    for step in steps:
        sources: dict[str, bytes] = getattr(step, "sources", {})
        digests |= {name: hashlib.sha256(source).hexdigest()[:12] for name, source in sources.items()}
    return digests


class TaskDone(SystemExit):
    """The pieces of this task are written: the process ends."""


@executors.register("task", help="one task of a Slurm job array; started by `--on slurm` itself")
class TaskPart(Executor):
    """Computes the pieces that the driver gave to this task, and leaves everything else to the driver."""

    takes_lock = False
    is_main = False

    def __init__(self, runtime: Runtime, settings: None = None) -> None:
        super().__init__()
        place, _, number = os.environ[VARIABLE].rpartition("#")
        if not place or not number.isdecimal():
            raise UserError(f"{VARIABLE}={os.environ[VARIABLE]} is not of the form FOLDER/tasks.json#NUMBER")
        self.folder = Path(place).parent
        self.tasks = _read_tasks(Path(place))
        check_versions(self.tasks["versions"], "the machine that submitted this job")
        if int(number) >= len(self.tasks["spans"]):
            raise UserError(f"{place} has {len(self.tasks['spans'])} tasks, and this is task {number}: it was changed")
        self.spans = [Span(*pair) for pair in self.tasks["spans"][int(number)]]

    def run(self, job: Job, spans: Sequence[Span], store: Store, *, quiet: bool) -> None:
        if store.key != self.tasks["store"]:
            if spans:
                self._check_files()  # a changed file gives the job another name: that is what the user must hear
                raise UserError(f"this task computes pieces of {self.tasks['store']}, but {store.key} is not finished")
            return
        self._check_files()
        wrong = [span for span in self.spans if not 0 <= span.start < span.stop <= job.total]
        if wrong:
            raise UserError(f"{self.folder / 'tasks.json'} asks for the rows {wrong[0]}, and there are {job.total}")
        done = set(store.spans())
        with Meter(job.title, total=len(self.spans), quiet=quiet, unit=job.unit) as meter:
            for span in self.spans:
                if span not in done:
                    self._compute(job, span, store, meter)
                meter.advance(span.rows)
        raise TaskDone(0)

    def _compute(self, job: Job, span: Span, store: Store, meter: Meter) -> None:
        inputs = next(iter(job.inputs([span])))
        result = job.run(span, inputs, notebook=store.notebook(span), meter=meter)
        if isinstance(store, PieceStore):  # on disk the piece outlives the driver: its flags must lie beside it
            job.collect(span, result)
        write_text(report_path(self.folder, span), json.dumps(result.report))
        store.write(span, result)  # last: its presence says that the piece is complete

    def _check_files(self) -> None:
        ours = file_digests(self.steps())
        for name, theirs in self.tasks["files"].items():
            if ours.get(name) != theirs:
                raise UserError(
                    f"{name} is another file here than where the job was submitted: {ours.get(name, 'missing')} here, "
                    f"{theirs} there. It was changed since, or the machines see different files"
                )


def _read_tasks(path: Path) -> TaskList:
    try:
        return TypeAdapter(TaskList).validate_python(read_json(path))
    except (ValidationError, OSError) as error:
        raise UserError(f"{path} is damaged or missing: {' '.join(str(error).split())[:200]}") from None


def read_report(path: Path) -> Any:
    """What a task has told about a piece."""
    return read_json(path)
