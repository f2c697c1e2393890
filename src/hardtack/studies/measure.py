"""Measuring one unit of a study: train its run if it is not trained, then its columns, each kept as a cell."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hardtack
from hardtack.base.errors import UserError
from hardtack.base.file_state import FileState, file_state
from hardtack.data.paths import find_path
from hardtack.studies.analysed import analysed_columns, fact_column
from hardtack.studies.cell_store import cell_id, read_cell, write_cell
from hardtack.studies.cells import Measured
from hardtack.studies.column import StudyColumn
from hardtack.studies.evaluated import evaluated_columns
from hardtack.studies.measuring import Failure, Measuring
from hardtack.studies.protocol import read_protocol
from hardtack.studies.unit import MODELS, Unit, references


def id_of(
    unit: Unit, column: StudyColumn, columns: Sequence[StudyColumn], measuring: Measuring,
    version: str = hardtack.__version__,
) -> str:  # fmt: skip
    """The id of the cell of this unit and column, as this version measures it; `columns` are those of the unit."""
    by_name = {other.name: other for other in columns}
    parts = [by_name[name] for name in column.worst_of if name in by_name]
    facts = [
        unit.digest, _how(column), [_how(part) for part in parts], measuring.n, dict(measuring.folders),
        measuring.frost, [other.digest for other in references(column, unit, measuring.units)], version,
    ]  # fmt: skip
    return cell_id(facts + _lists(column, measuring))


def _lists(column: StudyColumn, measuring: Measuring) -> list[str]:
    """The digest of the list of images that the column takes, if there is one: its text may change under its name."""
    if column.protocol is not None:
        protocol = read_protocol(column.protocol)
        keys = [item.test_list for item in protocol.columns if item.name == column.column and item.test_list]
        folders = protocol.folders
    else:
        keys, folders = [column.test_list] if column.test_list else [], column.folders
    digests = []
    for key in keys:
        with contextlib.suppress(UserError, OSError):
            place = find_path(measuring.folders.get(key, folders[key]), measuring.data_root, kind="test_list")
            digests.append(hashlib.sha256(place.read_bytes()).hexdigest())
    return digests


def _how(column: StudyColumn) -> list[Any]:
    """How a column is measured, without how it is shown."""
    version = read_protocol(column.protocol).version if column.protocol else None
    return [
        column.protocol, version, column.suite, column.analysis, column.fact, column.metric, column.of, column.column,
        column.array, column.reduce, column.data, column.official, column.test_list, column.folders, column.settings,
        column.unit,
    ]  # fmt: skip


def measure_unit(unit: Unit, columns: Sequence[StudyColumn], measuring: Measuring) -> dict[str, Measured | Failure]:
    """Every column of a unit. What was measured before is read; a column that fails does not stop the others."""
    ids = {column.name: id_of(unit, column, columns, measuring) for column in columns}
    cells: dict[str, Measured | Failure] = {}
    for name, id in ids.items():
        if (stored := read_cell(measuring.root, id, measuring.root / MODELS)) is not None:
            cells[name] = stored
    wanted = [column for column in columns if column.name not in cells]
    if not wanted:
        return cells
    folder = train_unit(unit, measuring)
    for name, cell in _measured(unit, folder, columns, wanted, measuring):
        if isinstance(cell, Measured) and measuring.is_main:
            about = {"study": unit.study, "row": unit.row, "training": unit.training, "column": name}
            write_cell(measuring.root, ids[name], cell, about)
        cells[name] = cell
    return cells


_FINISHED: dict[Path, FileState | None] = {}  # run folders that this process has found trained to the end


def train_unit(unit: Unit, measuring: Measuring) -> Path:
    """Train the run of a unit, after the one that it starts from, or resume it; returns its folder.

    Several studies ask for the same run one after the other: a run that is as this process has left it is not opened
    again, which would load its data.
    """
    from hardtack.commands.recipe_validator import validator_of
    from hardtack.training import read_recipe
    from hardtack.training.checkpoint import STATE
    from hardtack.training.start import train_recipe

    if is_finished(unit, measuring):
        return unit.folder(measuring.root)
    start = train_unit(unit.start, measuring) if unit.start is not None else None
    recipe = read_recipe(None, **unit.recipe_values(measuring.root, measuring.home))
    folder = train_recipe(
        recipe, validate=validator_of(recipe), quiet=measuring.quiet, folder=unit.folder(measuring.root), start=start
    )
    _FINISHED[folder] = file_state(folder / STATE)
    return folder


def is_finished(unit: Unit, measuring: Measuring) -> bool:
    """Whether the run of a unit is as this process has left it, or found it, trained to its end."""
    from hardtack.training.checkpoint import STATE

    folder = unit.folder(measuring.root)
    return folder in _FINISHED and _FINISHED[folder] == file_state(folder / STATE) is not None


def _measured(
    unit: Unit, folder: Path, columns: Sequence[StudyColumn], wanted: Sequence[StudyColumn], measuring: Measuring
) -> Iterator[tuple[str, Measured | Failure]]:
    yield from evaluated_columns(unit, folder, columns, wanted, measuring)
    analysed = [column for column in wanted if column.kind == "analysis"]
    yield from analysed_columns(unit, folder, analysed, measuring, lambda other: train_unit(other, measuring))
    for column in wanted:
        if column.kind == "fact":
            yield column.name, fact_column(unit, folder, column)
