"""Findings: what an analysis stores in a run folder, `analysis/<id>.json` with arrays in `analysis/<id>.npz`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json, shorten
from hardtack.results.frames import result_dicts, result_frame
from hardtack.results.metrics import is_share
from hardtack.results.notebook import table_html
from hardtack.results.record import Result

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of an analysis of one model: `results` with intervals, `arrays` by name, `facts`, and `notes`.

    `about` has the values for captions: run, model, checkpoint, data, n, seconds, created, device.
    """

    id: str
    analysis: str
    settings: Mapping[str, Any]
    about: Mapping[str, Any]
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    arrays: Mapping[str, np.ndarray] = field(repr=False)
    results: tuple[Result, ...] = field(default=(), repr=False)

    def of(self, metric: str, column: str = "") -> Result | None:
        """The result of this metric; `column` is the layer or class if the metric has several results."""
        matches = (
            result for result in self.results if result.metric == metric and result.extra.get("column", "") == column
        )
        return next(matches, None)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, as plain values that JSON can hold; `results` are whole records."""
        plain = {"id": self.id, "analysis": self.analysis, "settings": dict(self.settings), "about": dict(self.about)}
        plain |= {"facts": dict(self.facts), "notes": list(self.notes), "arrays": list(self.arrays)}
        return {**plain, "results": result_dicts(self.results)}

    def to_frame(self) -> pandas.DataFrame:
        """A data frame of pandas: a row for each number."""
        return result_frame(self.results)

    def _repr_html_(self) -> str:
        flags = self.results[0].flags if self.results else ()
        return table_html(
            self._title(), list(zip(self._names(), self.results, strict=True)), flags=flags, notes=self.notes
        )

    def _title(self) -> str:
        where = f" on {self.about['data']}" if self.about.get("data") else ""
        own = f"{self.analysis}."
        words = [word.removeprefix(own) for word in self.about.get("words", ()) if word.startswith(own)]
        return f"{self.analysis}{where}{': ' if words else ''}{' '.join(words)}"

    def _names(self) -> list[str]:
        return [
            " ".join(filter(None, (_spoken(result), result.threat, result.extra.get("column"))))
            for result in self.results
        ]

    def __str__(self) -> str:
        lines, names = [f"{self._title()}  ({self.id})"], self._names()
        width = max([32, *map(len, names)])
        for name, result in zip(names, self.results, strict=True):
            kind = ".2%" if is_share(result.metric) else ".4g"
            sure = "" if result.low is None or result.high is None else f"  [{result.low:{kind}}, {result.high:{kind}}]"
            lines.append(f"{name:<{width}} {result.value:10{kind}}{sure}" + (f"  n={result.n}" if result.n else ""))
        flags = self.results[0].flags if self.results else ()
        lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in flags]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _spoken(result: Result) -> str:
    return result.metric.replace("_", " ")


def finding_path(run_dir: str | Path, id: str) -> Path:
    """The path of the record of a finished analysis; the file of its arrays is beside it."""
    return Path(run_dir) / "analysis" / f"{id}.json"


def write_finding(run_dir: str | Path, id: str, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write a finished analysis. The record is written last: its presence means that the analysis is complete."""
    path = finding_path(run_dir, id)
    write_arrays(path.with_suffix(".npz"), arrays)
    return write_text(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def finding_files(run_dir: str | Path) -> list[Path]:
    """The paths of the records of all finished analyses."""
    return sorted(Path(run_dir).glob("analysis/*.json"))


def read_finding(path: Path, results: Sequence[Result]) -> Finding:
    """Read one finding; `results` are all results of the run, from which it selects its own."""
    arrays = path.with_suffix(".npz")
    if not zipfile.is_zipfile(arrays):
        raise UserError(f"{arrays} is missing or damaged: run the analysis again")
    try:
        record = read_json(path)
        sections = {name: record[name] for name in ("settings", "about", "facts")}
        for name, section in sections.items():
            if not isinstance(section, dict):
                raise UserError(f"'{name}' is {shorten(repr(section))}, expected an object")
        if not isinstance(record["analysis"], str) or not isinstance(record["notes"], list):
            raise UserError("'analysis' must be a text and 'notes' a list of texts")
        return Finding(
            id=path.stem,
            analysis=record["analysis"],
            **sections,
            notes=tuple(str(note) for note in record["notes"]),
            arrays=_Stored(arrays),
            results=tuple(result for result in results if result.evaluation == path.stem),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a valid record of an analysis ({error}): run the analysis again") from None


class _Stored(Mapping[str, np.ndarray]):
    """The arrays of a file, which is read on the first access: a report of many runs needs only a few of them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return read_arrays(self.path)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
