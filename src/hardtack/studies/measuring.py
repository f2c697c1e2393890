"""What measuring any column needs: the folders and words of the study, failures, and values in the table's units."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.errors import UserError
from hardtack.base.files import is_disk_full
from hardtack.results import Result, is_share
from hardtack.studies.cells import Measured
from hardtack.studies.column import StudyColumn
from hardtack.studies.protocol import read_protocol
from hardtack.studies.unit import Unit


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """What all units of a study share: the folder of the studies, the cap on images, and words of the user's."""

    root: Path
    home: Path | None = None  # what `root` is a copy of, on a machine with another disk
    units: Sequence[Unit]
    n: int | None = None
    data_root: str | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    frost: str | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = False
    is_main: bool = True  # whether this process writes
    tell: Callable[[str], None] = print

    def images(self, asked: int | None) -> int | None:
        """How many images a column uses that asks for so many."""
        known = [number for number in (asked, self.n) if number is not None]
        return min(known, default=None)

    def words(self) -> dict[str, Any]:
        """The user's settings for evaluations and analyses."""
        words: dict[str, Any] = {"runtime": dict(self.runtime)} if self.runtime else {}
        return words | ({"data": {"root": self.data_root}} if self.data_root is not None else {})


@dataclass(frozen=True)
class Failure:
    """Why a cell could not be measured."""

    message: str


def guarded(work: Callable[[], Measured]) -> Measured | Failure:
    """The cell, or why there is none. A full disk stops the whole study: no other row would fare better."""
    try:
        return work()
    except UserError as error:
        if is_disk_full(error):
            raise
        return Failure(str(error))
    except (OSError, MemoryError):
        raise
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")


def from_result(unit: Unit, result: Result, vector: Mapping[int, float] | None, folder: Path) -> Measured:
    index = np.array(sorted(vector)) if vector else None
    return Measured(
        seed=unit.seed, value=result.value, n=result.n, low=result.low, high=result.high, flags=result.flags,
        run=folder.name, evaluation=result.evaluation, result=result.value, index=index,
        vector=None if index is None else np.array([(vector or {})[image] for image in index.tolist()]),
    )  # fmt: skip


def in_units(cell: Measured, column: StudyColumn) -> Measured:
    """The cell in the units of the table: a share as a percentage, unless the paper prints fractions."""
    if unit_of(column) != "percent":
        return cell
    low, high = (None if end is None else 100 * end for end in (cell.low, cell.high))
    vector = None if cell.vector is None else 100 * cell.vector
    return dataclasses.replace(cell, value=100 * cell.value, low=low, high=high, vector=vector)


def unit_of(column: StudyColumn) -> str:
    """The unit of a column: as the file says, or percent where its metric is a share."""
    if column.unit is not None:
        return column.unit
    metric = column.metric
    if metric is None and column.protocol is not None:
        metric = next(item.metric for item in read_protocol(column.protocol).columns if item.name == column.column)
    return "percent" if column.worst_of or (metric is not None and is_share(metric)) else "number"
