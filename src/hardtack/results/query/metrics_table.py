"""The table `metrics`: a row for each line of every run's `metrics.jsonl`, a column for each key that any line has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hardtack.results.query.columns import NUMBER, TEXT, Column, make_table, to_json
from hardtack.results.query.folders import Folder

MOST_COLUMNS = 1000
FIRST = [
    Column("run", TEXT, "the run"),
    Column("kind", TEXT, "train: the mean over some steps; validation: after an epoch; warning"),
    Column("step", NUMBER, "optimiser steps so far"),
    Column("epoch", NUMBER, "epochs so far; a fraction within an epoch"),
    Column("loss", NUMBER, "the loss of training"),
    Column("lr", NUMBER, "the learning rate"),
    Column("clean_accuracy", NUMBER, "accuracy on clean validation images"),
    Column("robust_accuracy", NUMBER, "accuracy under the attack, of training or of validation"),
]
_NAMED = {column.name: column for column in FIRST}


def metrics_table(folders: Sequence[Folder]) -> pa.Table:
    """Of other keys, those with a number everywhere are DOUBLE, and others are VARCHAR (lists as JSON)."""
    lines = [(folder, line) for folder in folders for line in folder.metrics]
    kinds: dict[str, pa.DataType] = {}
    spelling: dict[str, str] = {}  # SQL does not distinguish upper and lower case
    for folder, line in lines:
        for key, value in line.items():
            if key.lower() in ("run", *_NAMED):
                continue
            too_many = key not in kinds and len(kinds) >= MOST_COLUMNS
            if not key.isprintable() or too_many or spelling.setdefault(key.lower(), key) != key:
                _leave_out(folder, key)
                continue
            is_number = isinstance(value, bool | int | float) or value is None
            kinds[key] = kinds.get(key, NUMBER) if is_number else TEXT
    columns = [
        Column("run", TEXT, "", lambda folder, line: folder.label),
        *(Column(name, _NAMED[name].type, "", _value(name)) for name in list(_NAMED)[1:]),
        *(Column(key, kind, "", _value(key)) for key, kind in kinds.items()),
    ]
    return make_table(columns, lines)


def _value(key: str) -> Any:
    def read(folder: Folder, line: dict[str, Any]) -> Any:
        value = line.get(key)
        return value if value is None or isinstance(value, bool | int | float | str) else to_json(value)

    return read


def _leave_out(folder: Folder, key: str) -> None:
    why = "it is no plain text, there is one like it, or there are too many"
    text = f"{folder.path / 'metrics.jsonl'}: the key {key[:100]!r} was left out: {why}"
    if text not in folder.problems:
        folder.problems.append(text)
