"""Results as comma-separated values, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hardtack.base.printable import printable
from hardtack.results.frames import COLUMNS
from hardtack.results.robustbench import Paper
from hardtack.results.runs import Run


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Paper):
    """The settings of `export`. Those of `Paper` are for format=robustbench only.

    format   csv: one line for each result; latex: booktabs tables of comparable numbers; robustbench: its model info
             (JSON); of models: onnx, torch, hub
    output   the file to write, of robustbench also a folder; null: print the text
    """

    format: Literal["csv", "latex", "robustbench", "onnx", "torch", "hub"] = "csv"
    output: str | None = None


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


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
