"""Studies as a job of the engine: its rows are runs, each of which is measured for every study that has it.

Studies share runs: their rows are trained with the same settings. A run is trained once, and one worker measures what
all studies ask of it, as long as its weights are at hand. What is measured is kept as cells (cell_store.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.cost import duration
from hardtack.base.digests import json_digest
from hardtack.base.lock import JobLock, JobLocks
from hardtack.base.progress import Meter
from hardtack.engine import Job, MemoryStore, Notebook, PieceResult, Span
from hardtack.studies.part import WHOLE_RUN, StudyPart, short
from hardtack.studies.unit import Unit
from hardtack.studies.unit_order import RunOrder

Member = tuple[int, int]  # the number of a study, and of a unit in it


class StudyStore(MemoryStore):
    """Cells are on disk as soon as they are measured, so pieces need not be; the locks are those of the studies."""

    def __init__(self, folders: Sequence[Path], units: Sequence[Unit]) -> None:
        super().__init__()
        self.folders, self.scratch = sorted(folders), folders[0] / ".tasks"
        self.key = f"study-{json_digest([unit.digest for unit in units])[:12]}"

    def lock(self, title: str) -> JobLocks:
        return JobLocks([JobLock(folder / ".lock", title) for folder in self.folders])


class StudiesJob(Job):
    """Trains and measures every run of one or several studies."""

    unit = "runs"

    def __init__(self, parts: Sequence[StudyPart]) -> None:
        self.parts = list(parts)
        self.root = parts[0].measuring.root
        self.title = f"study {parts[0].name} ({parts[0].scale})"
        if len(parts) > 1:
            self.title = f"{len(parts)} studies ({parts[0].scale})"
        self.runs = members_by_run(parts)
        self.total = len(self.runs)
        touched = ([run for part, unit in self._of(row) for run in part.touched(unit)] for row in range(self.total))
        self.order = RunOrder([*touched])
        self._since, self._done = time.monotonic(), 0

    def _of(self, row: int) -> list[tuple[StudyPart, Unit]]:
        return [(self.parts[part], self.parts[part].units[unit]) for part, unit in self.runs[row]]

    def relocate(self, root: Path) -> None:
        self.root = root
        for part in self.parts:
            part.relocate(root)

    def begin(self) -> None:
        for part in self.parts:
            part.begun()

    def needs(self, span: Span) -> Sequence[int]:
        return self.order.needs[span.start]

    def expected(self, span: Span) -> float:
        return self.order.waiting[span.start]

    def folders(self, span: Span) -> Sequence[Path]:
        return sorted({place for part, unit in self._of(span.start) for place in part.places(unit)})

    def piece_size(self, most: int) -> int:
        return 1

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        self._tell(f"{span.start + 1} of {self.total}, {self._name(span.start)}{self._left()}")
        failures, seconds = list[dict[str, str]](), list[float]()
        for part, unit in self._of(span.start):
            began = time.monotonic()
            broken = next((failed[WHOLE_RUN] for failed in failures if WHOLE_RUN in failed), "")
            again = bool(broken) and not part.is_trained(unit) and not part.is_measured(unit)
            failures.append({WHOLE_RUN: broken} if again else part.measure(unit))  # a training would fail again
            seconds.append(time.monotonic() - began)
        return PieceResult(
            columns={"failed": np.array([any(failures)])}, report={"failures": failures, "seconds": seconds}
        )

    def collect(self, span: Span, result: PieceResult) -> None:
        """Take note of what a run came to: from this process, or from the cells that a worker has written."""
        members = self._of(span.start)
        self._done += 1
        if not any(part.measured_here(unit) for part, unit in members):
            self._tell(f"{self._name(span.start)} is finished{self._left()}")
        report = result.report
        for (part, unit), failures, seconds in zip(members, report["failures"], report["seconds"], strict=True):
            part.seconds += seconds
            part.collect(unit, failures, names=len(self.parts) > 1)

    def share(self, part: StudyPart) -> float:
        """The part of the job's time that went into one of the studies."""
        total = sum(part.seconds for part in self.parts)
        return part.seconds / total if total else 1 / len(self.parts)

    def finish(self, columns: Any, arrays: Any, *, is_main: bool) -> list[Any]:
        """What every study came to, as `StudyPart.result` has it."""
        return [part.result() for part in self.parts]

    def _tell(self, line: str) -> None:
        self.parts[0].measuring.tell(f"{self.title}: {line}")

    def _name(self, row: int) -> str:
        members = self._of(row)
        name = short(members[0][1])
        if len(self.parts) > 1:
            name = f"{members[0][0].name}:{name}" + (f" for {len(members)} studies" if len(members) > 1 else "")
        return name

    def _left(self) -> str:
        """Time left by what the runs before took; none before the first."""
        if self._done in (0, self.total):
            return ""
        return f", about {duration((time.monotonic() - self._since) / self._done * (self.total - self._done))} left"


def members_by_run(parts: Sequence[StudyPart]) -> list[list[Member]]:
    """The units of all studies, those of the same run together: one seed of all studies after the other."""
    runs: dict[str, list[Member]] = {}
    for number, part in enumerate(parts):
        for place, unit in enumerate(part.units):
            runs.setdefault(unit.digest, []).append((number, place))

    def seed(members: list[Member]) -> int:
        return min(parts[number].units[place].seed for number, place in members)

    return sorted(runs.values(), key=seed)
