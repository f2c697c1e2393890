"""A study as a job of the engine: its rows are the units of the study, its results the cells that they are kept in."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.cost import duration
from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import is_disk_full, write_text
from hardtack.base.lock import JobLock
from hardtack.base.progress import Meter
from hardtack.engine import Job, MemoryStore, Notebook, PieceResult, Span
from hardtack.studies.cell_store import read_cell
from hardtack.studies.cells import Cells, Measured
from hardtack.studies.measure import id_of, measure_unit
from hardtack.studies.measuring import Failure, Measuring
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import MODELS, Unit
from hardtack.studies.unit_order import UnitOrder


class StudyStore(MemoryStore):
    """Cells are on disk as soon as they are measured, so pieces need not be; the lock is that of the study's folder."""

    def __init__(self, folder: Path, units: Sequence[Unit]) -> None:
        super().__init__()
        self.folder, self.scratch = folder, folder / ".tasks"
        self.key = f"study-{json_digest([unit.digest for unit in units])[:12]}"

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
        self.total, self.root = len(units), measuring.root
        self.order = UnitOrder(scaled, units, measuring)
        self.title = f"study {scaled.study.name} ({scaled.scale.name})"
        self.cells: dict[tuple[str, str], dict[int, Measured]] = {}
        self._failed: dict[Unit, dict[str, str]] = {}
        self._since = time.monotonic()
        self._collected: set[int] = set()
        self._measured: dict[Unit, dict[str, Measured]] = {}  # in this process, until it is collected

    def __getstate__(self) -> dict[str, Any]:
        """In a worker: nothing is told or written there but the unit's own run and cells."""
        quiet = dataclasses.replace(self.measuring, quiet=True, tell=_say_nothing)
        away = {"measuring": quiet, "_begun": _do_nothing, "_after": _do_nothing, "cells": {}, "_failed": {}}
        return {**self.__dict__, **away}

    def relocate(self, root: Path) -> None:
        home = self.measuring.home or self.measuring.root
        self.root, self.measuring = root, dataclasses.replace(self.measuring, root=root, home=home)

    def begin(self) -> None:
        self._begun()

    def needs(self, span: Span) -> Sequence[int]:
        return self.order.needs[span.start]

    def expected(self, span: Span) -> float:
        return self.order.waiting[span.start]

    def folders(self, span: Span) -> Sequence[Path]:
        return self.order.folders(span.start, self.measuring.root)

    def piece_size(self, most: int) -> int:
        return 1

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        unit = self.units[span.start]
        self.measuring.tell(f"{self.title}: {span.start + 1} of {self.total}, {_short(unit)}{self._left(span.start)}")
        failures: dict[str, str] = {}
        try:
            cells = measure_unit(unit, self.scaled.columns_of(unit.training), self.measuring)
            failures |= {name: cell.message for name, cell in cells.items() if isinstance(cell, Failure)}
            self._measured[unit] = {name: cell for name, cell in cells.items() if isinstance(cell, Measured)}
        except (KeyboardInterrupt, OSError):
            raise
        except UserError as error:
            if is_disk_full(error):
                raise
            failures[""] = str(error)
        except Exception as error:  # the row has failed; the others may not
            failures[""] = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return PieceResult(columns={"failed": np.array([bool(failures)])}, report={"failures": failures})

    def collect(self, span: Span, result: PieceResult) -> None:
        """Take note of what a unit came to: from this process, or from the cells that a worker has written."""
        unit, failures = self.units[span.start], result.report["failures"]
        if unit in self._measured:
            cells = self._measured.pop(unit)
        else:
            cells = self._written(unit)
            self.measuring.tell(f"{self.title}: {_short(unit)} is finished{self._left(len(self._collected))}")
        self._collected.add(span.start)
        for name, cell in cells.items():
            self.cells.setdefault((unit.row, name), {})[unit.seed] = cell
        self._tell(unit, failures)
        self._failed |= {unit: failures} if failures else {}
        self._after(self._cells(), self._failed)

    def _written(self, unit: Unit) -> dict[str, Measured]:
        """The cells of a unit on disk."""
        columns, root = self.scaled.columns_of(unit.training), self.measuring.root
        ids = {column.name: id_of(unit, column, columns, self.measuring) for column in columns}
        cells = {name: read_cell(root, id, root / MODELS) for name, id in ids.items()}
        return {name: dataclasses.replace(cell, seed=unit.seed) for name, cell in cells.items() if cell is not None}

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


def _say_nothing(line: str) -> None:
    """The telling of a worker."""


def _do_nothing(*_: Any) -> None:
    """What a worker does before and after units."""


def _short(unit: Unit) -> str:
    seed = f", seed {unit.seed}" if unit.seed else ""
    return f"{unit.row}/{unit.training}{seed}"
