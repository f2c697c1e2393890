"""Rows of protocols: do they agree with the evaluations that they were taken from?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.digests import json_digest, json_text
from hardtack.base.errors import UserError
from hardtack.results.disagreement import Agreement, Disagreement, label, wrong_field, wrong_file
from hardtack.results.evidence import is_id, same_json
from hardtack.results.metrics import per_image
from hardtack.results.record import Result
from hardtack.results.store import read_verdicts, verdicts_path

Columns = Mapping[str, np.ndarray]
_COPIED = (
    "value", "low", "high", "n", "interval", "attack_settings", "flags", "data", "data_description", "run", "model",
    "checkpoint", "weights_sha256", "seed", "precision",
)  # fmt: skip
_WORST = " + "  # between the columns whose worst case a column is


def protocol_id(protocol: str, evaluations: Sequence[str], columns: Sequence[str]) -> str:
    """The id of a row: its protocol, the evaluations that it was taken from, and its columns in order."""
    return f"protocol-{json_digest([protocol, sorted(evaluations), list(columns)])[:12]}"


def check_protocol(
    folder: Path,
    lines: list[Result],
    columns: Columns | None,
    sources: Mapping[str, list[Result]],
    agreements: Mapping[str, Agreement],
    agreement: Agreement,
) -> None:
    """A column of a protocol is a copy of a result of another evaluation in the folder, or the worst of columns.

    `sources` are the results of these evaluations, and `agreements` what their own evidence says of them.
    """
    if any("measured_by" not in result.extra for result in lines):
        agreement.cannot_verify("extra.measured_by does not say which evaluation a column is from")
        return
    _check_id(lines, agreement)
    for result in (result for result in lines if _WORST not in str(result.attack)):
        source = str(result.extra.get("measured_by"))
        copies = [other for other in sources.get(source, ()) if _key(other) == _key(result)]
        if not copies:
            missing = f"no {label(result)} of that evaluation"
            agreement.wrong.append(wrong_field(result, "extra.measured_by", source, missing, "results.jsonl"))
            continue
        for name in _COPIED:
            stored, expected = getattr(result, name), getattr(copies[0], name)
            if not same_json(stored, expected):
                agreement.wrong.append(wrong_field(result, name, stored, expected, source))
        _check_source(result, copies[0], agreements[source], agreement)
        _check_column(folder, result, copies[0], columns, agreement)
    for result in (result for result in lines if _WORST in str(result.attack)):
        _check_worst(result, lines, columns, agreement)


def _check_source(result: Result, copy: Result, of_source: Agreement, agreement: Agreement) -> None:
    """A copy can be believed no more than the number that it was taken from."""
    state, reason = of_source.of(copy)
    if state == "disagrees":
        about = f"a number of {copy.evaluation} that its own evidence contradicts ({reason})"
        agreement.wrong.append(wrong_field(result, "extra.measured_by", about, "a number that agrees", ""))
    elif state in ("unverifiable", "reported"):
        agreement.cannot_verify(f"{copy.evaluation}: {reason}", result)
    agreement.has_record &= of_source.has_record


def _check_id(lines: list[Result], agreement: Agreement) -> None:
    """The id follows from the protocol, the evaluations and the columns of the row."""
    ordered = sorted(lines, key=lambda result: _number(result.extra.get("place")))
    evaluations = {str(result.extra.get("measured_by")) for result in lines}
    expected = protocol_id(
        lines[0].protocol, sorted(evaluations), [str(result.extra.get("column")) for result in ordered]
    )
    for result in lines:
        if result.protocol != lines[0].protocol:
            agreement.wrong.append(wrong_field(result, "protocol", result.protocol, lines[0].protocol, "another line"))
    if lines[0].evaluation != expected:
        stored = lines[0].evaluation
        agreement.wrong.append(
            Disagreement(about="", field="evaluation", stored=stored, evidence=expected, source="its columns")
        )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _key(result: Result) -> tuple[Any, ...]:
    return result.metric, result.threat, result.attack


def _check_column(folder: Path, result: Result, source: Result, columns: Columns | None, agreement: Agreement) -> None:
    """The values per image of a column are those of the evaluation that it was taken from."""
    name = f"value@{result.extra.get('column')}"
    if columns is None or name not in columns or not is_id(source.evaluation):
        return
    try:
        verdicts = read_verdicts(verdicts_path(folder, source.evaluation))
    except UserError:
        agreement.cannot_verify(f"the verdict file of {source.evaluation} cannot be read", result)
        return
    vector = per_image(source, verdicts)
    if vector is None:
        return
    expected = dict(zip(verdicts["index"].tolist(), vector.tolist(), strict=True))
    stored = dict(zip(columns["index"].tolist(), columns[name].tolist(), strict=True))
    odd = [number for number, value in stored.items() if expected.get(number) != value]
    if odd or len(stored) != len(expected):
        at = f"{len(odd)} other values, the first at index {odd[:1]}"
        agreement.wrong.append(wrong_field(result, "values", at, "other values", source.evaluation))


def _check_worst(result: Result, lines: list[Result], columns: Columns | None, agreement: Agreement) -> None:
    """A worst case: an image is correct if it is in all of the columns, and the flags are those of all of them."""
    names = str(result.attack).split(_WORST)
    by_column = {str(other.extra.get("column")): other for other in lines}
    sources = [by_column[name] for name in names if name in by_column]
    threats = "+".join(dict.fromkeys(source.threat or "" for source in sources))
    flags = list({json_text(flag): flag for source in sources for flag in source.flags}.values())
    for name, expected in (("threat", threats), ("flags", flags), ("metric", "worst_case_accuracy")):
        if not same_json(getattr(result, name), expected):
            agreement.wrong.append(wrong_field(result, name, getattr(result, name), expected, "its columns"))
    contradicted = [name for name in names if name in by_column and agreement.of(by_column[name])[0] == "disagrees"]
    if contradicted:
        about = f"the worst of columns of which {', '.join(contradicted)} disagrees with its evidence"
        agreement.wrong.append(wrong_field(result, "value", about, "columns that agree", ""))
    parts = [f"value@{name}" for name in names]
    own = f"value@{result.extra.get('column')}"
    if columns is None or not {own, *parts} <= set(columns):
        agreement.cannot_verify("the columns that it is the worst of are not in the verdict file", result)
        return
    worst = np.logical_and.reduce([columns[part] > 0.5 for part in parts]).astype(float)
    odd = np.flatnonzero(columns[own] != worst)
    if len(odd):
        stored = f"{len(odd)} values, the first at index {int(columns['index'][odd[0]])}"
        agreement.wrong.append(wrong_file(own, stored, "other values", "the worst of its columns"))
