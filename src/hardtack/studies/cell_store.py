"""Measured cells on disk: `cells/ID.json` with the values per image in `cells/ID.npz`, named by what they depend on.

The id of a cell is a digest of its run, of how the column is measured, of the number of images and of the version. A
study that is changed finds every cell that its change does not touch.

A cell is a copy of what a run folder says, kept for speed. It is used only if the run's own results have its value, so
that `hardtack verify` on the run is a check of the table, too; otherwise it is measured again.
"""

from __future__ import annotations

import functools
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.results import read_results
from hardtack.studies.cells import Measured

FOLDER = "cells"
_DIGITS = 16
_PLAIN = ("seed", "value", "n", "low", "high", "run", "evaluation", "result")


def cell_id(facts: Sequence[Any]) -> str:
    """The name of a cell: a digest of everything that it depends on."""
    return json_digest(list(facts))[:_DIGITS]


def write_cell(root: Path, id: str, cell: Measured, about: Mapping[str, Any]) -> None:
    """Keep a cell. The record is written last: its presence means that the cell is complete."""
    path = root / FOLDER / f"{id}.json"
    if cell.index is not None and cell.vector is not None:
        write_arrays(path.with_suffix(".npz"), {"index": cell.index, "vector": cell.vector})
    record = {name: getattr(cell, name) for name in _PLAIN}
    record |= {"flags": list(cell.flags), "per_image": cell.vector is not None, "about": dict(about)}
    write_text(path, json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def read_cell(root: Path, id: str, runs: Path) -> Measured | None:
    """The cell of this id; None if it was not measured, is damaged, or its run (in `runs`) says otherwise."""
    path = root / FOLDER / f"{id}.json"
    if not path.is_file():
        return None
    try:
        record = read_json(path)
        values = {name: record[name] for name in _PLAIN}
        arrays: Mapping[str, np.ndarray] = {}
        if record["per_image"]:
            if not zipfile.is_zipfile(path.with_suffix(".npz")):
                return None
            arrays = read_arrays(path.with_suffix(".npz"))
        flags = tuple(_flag(flag) for flag in record["flags"])
        cell = Measured(**values, flags=flags, index=arrays.get("index"), vector=arrays.get("vector"))
    except (UserError, KeyError, TypeError, ValueError):
        return None
    return cell if _is_sound(cell) and _is_result(cell, runs) else None


def _flag(flag: Mapping[str, Any]) -> dict[str, Any]:
    return {"level": str(flag["level"]), "code": str(flag["code"]), "message": str(flag["message"]), **flag}


def _is_sound(cell: Measured) -> bool:
    """Whether everything has its type, and the values per image have the mean that the cell states."""
    numbers = [cell.value, *(end for end in (cell.low, cell.high, cell.result) if end is not None)]
    plain = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    if not plain or not all(type(count) is int and count >= 0 for count in (cell.seed, cell.n)):
        return False
    if not isinstance(cell.evaluation, str) or not isinstance(cell.run, str) or Path(cell.run).name != cell.run:
        return False
    if cell.index is None or cell.vector is None:
        return cell.index is cell.vector
    numbers_of = (
        cell.index.ndim == cell.vector.ndim == 1 and cell.index.dtype.kind == "i" and cell.vector.dtype.kind == "f"
    )
    if not numbers_of or len(cell.index) != len(cell.vector) or not len(cell.vector):
        return False
    return bool(
        np.all(np.diff(cell.index) > 0) and math.isclose(cell.vector.mean(), cell.value, rel_tol=1e-3, abs_tol=1e-6)
    )


def _is_result(cell: Measured, runs: Path) -> bool:
    """Whether the run has a result of this value; what is no result of an evaluation cannot be looked up."""
    if cell.result is None:
        return True
    if not any(math.isclose(cell.value, factor * cell.result, rel_tol=1e-9, abs_tol=1e-12) for factor in (1, 100)):
        return False
    path = runs / cell.run / "results.jsonl"
    if not path.is_file():
        return False
    status = path.stat()
    return cell.result in _values(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=64)
def _values(results: Path, modified_ns: int, size: int) -> frozenset[float]:
    """The values of all results of a run; the other arguments make a changed file another one."""
    try:
        return frozenset(result.value for result in read_results(results.parent))
    except UserError:
        return frozenset()
