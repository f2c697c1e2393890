"""Results as comma-separated values, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hardtack.base.printable import printable
from hardtack.results.record import Result
from hardtack.results.robustbench import Paper
from hardtack.results.runs import Run


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Paper):
    """The settings of `export`. Those of `Paper` are for format=robustbench only.

    format   csv: one line for each result; latex: booktabs tables of comparable numbers; robustbench: its model info
             (JSON)
    output   the file to write, of robustbench also a folder; null: print the text
    """

    format: Literal["csv", "latex", "robustbench"] = "csv"
    output: str | None = None


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
COLUMNS: dict[str, Callable[[Result], object]] = {
    "model": lambda result: result.model,
    "checkpoint": lambda result: result.checkpoint,
    "metric": lambda result: result.metric,
    "value": lambda result: result.value,
    "low": lambda result: result.low,
    "high": lambda result: result.high,
    "interval": lambda result: result.interval,
    "n": lambda result: result.n or None,
    "threat": lambda result: result.threat,
    "attack": lambda result: result.attack,
    "suite": lambda result: result.suite,
    "data": lambda result: result.data,
    "data_description": lambda result: result.data_description,
    "protocol": lambda result: result.protocol,
    "column": lambda result: result.extra.get("column"),
    "source": lambda result: result.extra.get("source"),
    "flags": lambda result: " ".join(f"{flag['level']}:{flag['code']}" for flag in result.flags),
    "precision": lambda result: result.precision,
    "seed": lambda result: result.seed,
    "created": lambda result: result.created,
    "weights_sha256": lambda result: result.weights_sha256,
    "evaluation": lambda result: result.evaluation,
}


def csv_text(runs: Sequence[Run]) -> str:
    """One line per result; accuracies are fractions, as they are stored."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["run", *COLUMNS])
    for run in runs:
        lines.writerows(
            map(csv_cell, [run.label, *(read(result) for read in COLUMNS.values())]) for result in run.results
        )
    return file.getvalue()


def csv_cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula gets an apostrophe: names in run folders may be anybody's."""
    text = printable(value) if isinstance(value, str) else value
    return f"'{text}" if isinstance(text, str) and text.lstrip(" '\"").startswith(_FORMULA) else text
