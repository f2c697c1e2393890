"""A study as a job of the engine: its rows are the units of the study, its results the cells that they are kept in."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.cost import duration
from hardtack.base.errors import UserError
from hardtack.base.files import is_disk_full, write_text
from hardtack.base.lock import JobLock
from hardtack.base.progress import Meter
from hardtack.engine import Job, MemoryStore, Notebook, PieceResult, Span
from hardtack.studies.cells import Cells, Measured
from hardtack.studies.measure import measure_unit
from hardtack.studies.measuring import Failure, Measuring
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import Unit


class StudyStore(MemoryStore):
    """Cells are on disk as soon as they are measured, so pieces need not be; the lock is that of the study's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def lock(self, title: str) -> JobLock:
        return JobLock(self.folder / ".lock", title)


class StudyJob(Job):
    """Trains and measures every unit. A unit or column that fails is told and does not stop the others."""

    unit = "runs"

    def __init__(
        self,
        scaled: ScaledStudy,
        units: list[Unit],
        measuring: Measuring,
        *,
        begun: Callable[[], None],
        after: Callable[[Cells, dict[Unit, dict[str, str]]], None],
    ) -> None:
        self.scaled, self.units, self.measuring, self._begun, self._after = scaled, units, measuring, begun, after
        self.total = len(units)
        self.title = f"study {scaled.study.name} ({scaled.scale.name})"
        self.cells: dict[tuple[str, str], dict[int, Measured]] = {}
        self._failed: dict[Unit, dict[str, str]] = {}
        self._since = time.monotonic()

    def begin(self) -> None:
        self._begun()

    def piece_size(self, most: int) -> int:
        return 1

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        unit = self.units[span.start]
        self.measuring.tell(f"{self.title}: {span.start + 1} of {self.total}, {_short(unit)}{self._left(span.start)}")
        failures: dict[str, str] = {}
        try:
            columns = self.scaled.columns_of(unit.training)
            for name, cell in measure_unit(unit, columns, self.measuring).items():
                if isinstance(cell, Failure):
                    failures[name] = cell.message
                else:
                    self.cells.setdefault((unit.row, name), {})[unit.seed] = cell
        except (KeyboardInterrupt, OSError):
            raise
        except UserError as error:
            if is_disk_full(error):
                raise
            failures[""] = str(error)
        except Exception as error:  # the row has failed; the others may not
            failures[""] = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        self._tell(unit, failures)
        self._failed |= {unit: failures} if failures else {}
        self._after(self._cells(), self._failed)
        return PieceResult(columns={"failed": np.array([bool(failures)])})

    def finish(self, columns: Any, arrays: Any, *, is_main: bool) -> tuple[Cells, dict[Unit, dict[str, str]]]:
        """The cells by row and column, and the failures of each unit by column ("" for the whole unit)."""
        return self._cells(), self._failed

    def _cells(self) -> Cells:
        return {key: tuple(by_seed[seed] for seed in sorted(by_seed)) for key, by_seed in self.cells.items()}

    def _left(self, done: int) -> str:
        """Time left by what the units before took; none before the first."""
        if done == 0:
            return ""
        return f", about {duration((time.monotonic() - self._since) / done * (self.total - done))} left"

    def _tell(self, unit: Unit, failures: dict[str, str]) -> None:
        numbers = [
            f"{column.title} {by_seed[unit.seed].value:.4g}"
            for column in self.scaled.columns_of(unit.training)
            if unit.seed in (by_seed := self.cells.get((unit.row, column.name), {}))
        ]
        if numbers:
            self.measuring.tell(f"  {', '.join(numbers)}")
        for column, message in failures.items():
            what = f"column {column}" if column else "the run"
            self.measuring.tell(f"  FAILED: {what} of {_short(unit)}: {message.splitlines()[0]}")
            if len(message.splitlines()) > 1 and self.measuring.is_main:
                write_text(self.measuring.root / "failures" / f"{unit.digest}-{column or 'run'}.txt", message)


def _short(unit: Unit) -> str:
    seed = f", seed {unit.seed}" if unit.seed else ""
    return f"{unit.row}/{unit.training}{seed}"
