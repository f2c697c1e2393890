"""The units of one study in a job of one or several: each is trained and measured, and kept by row and column."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.files import is_disk_full, write_text
from hardtack.studies.cell_store import FOLDER, read_cell
from hardtack.studies.cells import Cells, Measured
from hardtack.studies.measure import id_of, is_finished, measure_unit
from hardtack.studies.measuring import Failure, Measuring
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import MODELS, Unit
from hardtack.studies.unit_order import runs_of

WHOLE_RUN = ""  # in place of a column's name: nothing of the unit could be measured


class StudyPart:
    """A unit or column that fails is told and does not stop the others.

    `begun` and `after` write the study's record.
    """

    def __init__(
        self,
        scaled: ScaledStudy,
        units: list[Unit],
        measuring: Measuring,
        *,
        begun: Callable[[], None],
        after: Callable[[Cells, dict[Unit, dict[str, str]]], None],
    ) -> None:
        self.scaled, self.units, self.measuring, self.begun, self._after = scaled, units, measuring, begun, after
        self.name, self.scale = scaled.study.name, scaled.scale.name
        self.seconds = 0.0  # of work on its units, by all workers
        self.cells: dict[tuple[str, str], dict[int, Measured]] = {}
        self._failed: dict[Unit, dict[str, str]] = {}
        self._measured: dict[Unit, dict[str, Measured]] = {}  # in this process, until it is collected

    def __getstate__(self) -> dict[str, Any]:
        """In a worker: nothing is told or written there but the unit's own run and cells."""
        quiet = dataclasses.replace(self.measuring, quiet=True, tell=_say_nothing)
        away = {"measuring": quiet, "begun": _do_nothing, "_after": _do_nothing, "cells": {}, "_failed": {}}
        return {**self.__dict__, **away}

    def relocate(self, root: Path) -> None:
        home = self.measuring.home or self.measuring.root
        self.measuring = dataclasses.replace(self.measuring, root=root, home=home)

    def touched(self, unit: Unit) -> Iterator[Unit]:
        """The runs that a unit reads or writes."""
        return runs_of(unit, self.scaled, self.measuring.units)

    def places(self, unit: Unit) -> list[Path]:
        """The run folders and cells that a unit reads or writes, as far as they exist."""
        root = self.measuring.root
        cells = [root / FOLDER / f"{id}.{kind}" for id in self._ids(unit).values() for kind in ("json", "npz")]
        runs = {run.folder(root) for run in self.touched(unit)}
        return [place for place in [*sorted(runs), *cells] if place.exists()]

    def measure(self, unit: Unit) -> dict[str, str]:
        """Train and measure a unit; returns why columns failed."""
        try:
            cells = measure_unit(unit, self.scaled.columns_of(unit.training), self.measuring)
        except (KeyboardInterrupt, OSError):
            raise
        except UserError as error:
            if is_disk_full(error):
                raise
            return {WHOLE_RUN: str(error)}
        except Exception as error:  # the row has failed; the others may not
            return {WHOLE_RUN: f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}
        self._measured[unit] = {name: cell for name, cell in cells.items() if isinstance(cell, Measured)}
        return {name: cell.message for name, cell in cells.items() if isinstance(cell, Failure)}

    def is_trained(self, unit: Unit) -> bool:
        """Whether this process has trained the run of a unit to its end, or found it so."""
        return is_finished(unit, self.measuring)

    def is_measured(self, unit: Unit) -> bool:
        """Whether every column of a unit is kept."""
        return len(self._written(unit)) == len(self._ids(unit))

    def measured_here(self, unit: Unit) -> bool:
        """Whether this process has measured a unit that is not collected yet."""
        return unit in self._measured

    def collect(self, unit: Unit, failures: dict[str, str], *, names: bool) -> None:
        """Take note of what a unit came to: from this process, or from the cells that a worker has written.

        `names`: say which study its numbers are of.
        """
        cells = self._measured.pop(unit) if unit in self._measured else self._written(unit)
        for name, cell in cells.items():
            self.cells.setdefault((unit.row, name), {})[unit.seed] = cell
        self._tell(unit, failures, prefix=f"{self.name}: " if names else "")
        self._failed |= {unit: failures} if failures else {}
        self._after(*self.result())

    def result(self) -> tuple[Cells, dict[Unit, dict[str, str]]]:
        """The cells by row and column, and the failures of each unit by column (WHOLE_RUN: of all)."""
        cells = {key: tuple(by_seed[seed] for seed in sorted(by_seed)) for key, by_seed in self.cells.items()}
        return cells, self._failed

    def _ids(self, unit: Unit) -> dict[str, str]:
        columns = self.scaled.columns_of(unit.training)
        return {column.name: id_of(unit, column, columns, self.measuring) for column in columns}

    def _written(self, unit: Unit) -> dict[str, Measured]:
        """The cells of a unit on disk."""
        root = self.measuring.root
        cells = {name: read_cell(root, id, root / MODELS) for name, id in self._ids(unit).items()}
        return {name: dataclasses.replace(cell, seed=unit.seed) for name, cell in cells.items() if cell is not None}

    def _tell(self, unit: Unit, failures: dict[str, str], *, prefix: str) -> None:
        numbers = [
            f"{column.title} {by_seed[unit.seed].value:.4g}"
            for column in self.scaled.columns_of(unit.training)
            if unit.seed in (by_seed := self.cells.get((unit.row, column.name), {}))
        ]
        if numbers:
            self.measuring.tell(f"  {prefix}{', '.join(numbers)}")
        for column, message in failures.items():
            what = f"column {column}" if column else "the run"
            self.measuring.tell(f"  {prefix}FAILED: {what} of {short(unit)}: {message.splitlines()[0]}")
            if len(message.splitlines()) > 1 and self.measuring.is_main:
                write_text(self.measuring.root / "failures" / f"{unit.digest}-{column or 'run'}.txt", message)


def short(unit: Unit) -> str:
    """How messages about its own study call a unit."""
    seed = f", seed {unit.seed}" if unit.seed else ""
    return f"{unit.row}/{unit.training}{seed}"


def _say_nothing(line: str) -> None:
    """The telling of a worker."""


def _do_nothing(*_: Any) -> None:
    """What a worker does before and after units."""
