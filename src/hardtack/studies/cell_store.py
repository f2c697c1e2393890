"""Measured cells on disk: `cells/ID.json` with the values per image in `cells/ID.npz`, named by what they depend on.

The id of a cell is a digest of its run, of how the column is measured, of the number of images and of the version. A
study that is changed finds every cell that its change does not touch.
"""

from __future__ import annotations

import json
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
from hardtack.studies.cells import Measured

FOLDER = "cells"
_DIGITS = 16
_PLAIN = ("seed", "value", "n", "low", "high", "run", "evaluation")


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


def read_cell(root: Path, id: str) -> Measured | None:
    """The cell of this id; None if it was not measured, or if its files are damaged."""
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
        return Measured(**values, flags=tuple(record["flags"]), index=arrays.get("index"), vector=arrays.get("vector"))
    except (UserError, KeyError, TypeError, ValueError):
        return None


def has_cell(root: Path, id: str) -> bool:
    """Whether the cell was measured, as far as its file's presence shows."""
    return (root / FOLDER / f"{id}.json").is_file()
