"""Do stored results agree with the evidence beside them in the run folder?

No model is needed, nothing is attacked: values, intervals, numbers of images and counts are recomputed from the verdict
files, and everything else is compared with the evidence record. `evaluate` recalls only results that agree, the page
and `compare` mark the others, and `hardtack verify` begins with this and goes on with the model.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.arrays import read_arrays
from hardtack.base.digests import columns_digest
from hardtack.base.errors import UserError
from hardtack.results.certificates import check_certificates
from hardtack.results.disagreement import (
    RECORD,
    Agreement,
    Disagreement,
    label,
    same_number,
    wrong_field,
    wrong_file,
)
from hardtack.results.evidence import Evidence, is_id, read_evidence, result_digest, same_json
from hardtack.results.findings import finding_path, read_finding
from hardtack.results.metrics import find_metric, per_image
from hardtack.results.protocol_rows import check_protocol
from hardtack.results.record import ANALYSIS, PROTOCOL, REPORTED, Result
from hardtack.results.recount import UNKNOWN, recount
from hardtack.results.store import adversarial_folder, read_verdicts, verdicts_path

Columns = Mapping[str, np.ndarray]
DISAGREES = "disagrees"  # the code of the red flag of a number that its evidence contradicts
# fields that all results of one evaluation share
SHARED = (
    "suite", "data", "data_description", "run", "model", "checkpoint", "weights_sha256", "seed", "precision", "device",
    "seconds", "versions", "created",
)  # fmt: skip
# which field of a result names its column, and how such columns begin
_NAMED_COLUMNS = {
    "robust_accuracy": ("threat", "robust@"), "corrupted_accuracy": ("attack", "correct@"),
    "flip_probability": ("attack", "flips@"),
}  # fmt: skip
_COUNTED = ("unverified", "forwards", "backwards")


def check_results(run_dir: str | Path, results: Iterable[Result]) -> dict[str, Agreement]:
    """The agreement of every evaluation among the results of a run, by its id."""
    groups, checked = by_evaluation(results), dict[str, Agreement]()
    return {id: _checked(Path(run_dir), id, groups, checked) for id in groups}


def by_evaluation(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of a run, grouped by the id of their evaluation."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.evaluation, []).append(result)
    return groups


def check_one(run_dir: str | Path, id: str, groups: Mapping[str, list[Result]]) -> Agreement:
    """The agreement of one evaluation of a run, of whose results `groups` are all (a protocol copies from others)."""
    return _checked(Path(run_dir), id, groups, {})


def check_evaluation(run_dir: str | Path, results: Sequence[Result]) -> Agreement:
    """The agreement of the results of one evaluation."""
    return next(iter(check_results(run_dir, results).values()), Agreement())


def flag_disagreements(results: Sequence[Result], agreements: Mapping[str, Agreement]) -> list[Result]:
    """The results; one whose evidence contradicts it has a red flag that says what is stored and what was expected."""
    flagged = []
    for result in results:
        agreement = agreements.get(result.evaluation, Agreement())
        mine = [wrong for wrong in agreement.wrong if wrong.about in ("", label(result))]
        message = "; ".join(str(wrong) for wrong in mine[:3])
        flag = {"level": "red", "code": DISAGREES, "message": message}
        flagged.append(replace(result, flags=(flag, *result.flags)) if mine else result)
    return flagged


def repeated_keys(run_dir: str | Path) -> dict[str, list[Disagreement]]:
    """Lines of results.jsonl that have a field twice, by evaluation: one reader takes the first, another the last."""
    path, found = Path(run_dir) / "results.jsonl", dict[str, list[Disagreement]]()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        twice: list[str] = []

        def collect(pairs: list[tuple[str, Any]], twice: list[str] = twice) -> dict[str, Any]:
            keys = [key for key, _ in pairs]
            twice.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
            return dict(pairs)

        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line, object_pairs_hook=collect)
            for key in twice:
                wrong = Disagreement(about=f"line {number}", field=key, stored="twice", evidence="once", source="")
                found.setdefault(str(values.get("evaluation")), []).append(wrong)
    return found


def disagrees(result: Result) -> bool:
    """Whether `flag_disagreements` flagged the result."""
    return any(flag["code"] == DISAGREES for flag in result.flags)


# ---------------------------------------------------------------- one evaluation


def _checked(folder: Path, id: str, groups: Mapping[str, list[Result]], checked: dict[str, Agreement]) -> Agreement:
    """The agreement of one evaluation, noted in `checked`.

    Files of a stranger may hold anything: what cannot be read is wrong.
    """
    if id not in checked:
        try:
            checked[id] = _check_group(folder, id, groups, checked)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"values that cannot be read ({type(error).__name__}: {error})"
            evidence = "files of this evaluation"
            wrong = Disagreement(about="", field="files", stored=text, evidence=evidence, source="the id")
            checked[id] = Agreement(wrong=[wrong])
    return checked[id]


def _check_group(folder: Path, id: str, groups: Mapping[str, list[Result]], checked: dict[str, Agreement]) -> Agreement:
    agreement, lines = Agreement(), groups[id]
    if all(result.extra.get("source") == REPORTED or result.suite == REPORTED for result in lines):
        _check_reported(lines, agreement)
        return agreement
    columns = _read_columns(folder, id, lines, agreement)
    if columns is not None:
        for result in lines:
            _check_numbers(result, columns, agreement)
        _check_rows(columns, agreement)
    _check_duplicates(lines, agreement)
    if lines[0].suite == PROTOCOL:
        named = {str(result.extra.get("measured_by")) for result in lines}
        sources = {name: groups[name] for name in named if name in groups and groups[name][0].suite != PROTOCOL}
        agreements = {name: _checked(folder, name, groups, checked) for name in sources}
        check_protocol(folder, lines, columns, sources, agreements, agreement)
        return agreement
    _check_shared(lines, agreement)
    if lines[0].suite == ANALYSIS:
        _check_analysis(folder, id, lines, agreement)
        return agreement
    if columns is not None:
        _check_counts(lines, columns, agreement)
        check_certificates(lines, columns, agreement)
        _check_image_rows(folder, id, columns, agreement)
    _check_record(folder, id, lines, columns, agreement)
    return agreement


def _check_reported(lines: list[Result], agreement: Agreement) -> None:
    for result in lines:
        for name, stored in (("verdicts", result.verdicts), ("weights_sha256", result.weights_sha256)):
            if stored is not None:
                agreement.wrong.append(wrong_field(result, name, stored, None, "a number that others report"))
    agreement.reported = True
    agreement.cannot_verify("the numbers are reported by others and were not measured here")


def _read_columns(folder: Path, id: str, lines: list[Result], agreement: Agreement) -> Columns | None:
    """The verdict file; a problem with it is noted."""
    expected = f"verdicts/{id}.parquet"
    for result in lines:
        if result.verdicts not in (None, expected):
            agreement.wrong.append(wrong_field(result, "verdicts", result.verdicts, expected, "the id"))
    if all(result.verdicts is None and result.suite == ANALYSIS for result in lines):
        agreement.cannot_verify("an analysis whose numbers are not means over images; repeat hardtack analyze")
        return None
    if not is_id(id):
        agreement.wrong.append(Disagreement(about="", field="evaluation", stored=id, evidence="no file of this name"))
        return None
    try:
        columns = read_verdicts(verdicts_path(folder, id))
    except UserError:
        state = "cannot be read" if verdicts_path(folder, id).is_file() else "is missing"
        agreement.cannot_verify(f"the verdict file {expected} {state}")
        return None
    if "index" not in columns:
        agreement.cannot_verify(f"{expected} has no column 'index'")
        return None
    return columns


def _check_rows(columns: Columns, agreement: Agreement) -> None:
    index = columns["index"]
    repeated = len(index) - len(np.unique(index))
    if repeated:
        agreement.wrong.append(wrong_file("index", f"{repeated} images twice", "every image once"))
    if {"clean_correct", "clean_prediction", "label"} <= set(columns):
        correct = columns["clean_prediction"] == columns["label"]
        _compare_rows("clean_correct", columns["clean_correct"], correct, index, agreement)
    each = [values for name, values in columns.items() if name.startswith("robust@")]
    if each and "robust" in columns:
        _compare_rows("robust", columns["robust"], np.logical_and.reduce(each), index, agreement)
        broken = columns["clean_correct"] & ~columns["robust"]
        reason = np.array([by is not None for by in columns["broken_by"]])
        _compare_rows("broken_by", reason, broken, index, agreement)
        for values in each:
            _compare_rows("robust", values & ~columns["clean_correct"], np.zeros(len(index), bool), index, agreement)


def _compare_rows(name: str, stored: np.ndarray, expected: np.ndarray, index: np.ndarray, agreement: Agreement) -> None:
    odd = np.flatnonzero(np.asarray(stored) != np.asarray(expected))
    if len(odd):
        text = (
            f"{len(odd)} verdicts contradict each other in the column {name}, the first at index {int(index[odd[0]])}"
        )
        agreement.wrong.append(wrong_file(name, text, "verdicts that fit together"))


def _check_numbers(result: Result, columns: Columns, agreement: Agreement) -> None:
    """Value, interval and number of images, counted again."""
    if result.verdicts is None:
        agreement.cannot_verify("it has no value per image", result)
        return
    again = recount(result, columns)
    if again is None:
        _name_missing_column(result, columns, agreement)
        return
    for name, expected in again._asdict().items():
        stored = getattr(result, name)
        if expected is not UNKNOWN and not same_number(stored, expected):
            agreement.wrong.append(wrong_field(result, name, stored, expected))
    classes = result.extra.get("per_class")
    vector = per_image(result, columns)
    if isinstance(classes, dict) and vector is not None and "label" in columns:
        count = len(classes.get("classes", ()))
        labels = columns["label"]
        for name, rows in (("n", labels), ("right", labels[vector > 0.5])):
            expected = np.bincount(rows[rows < count], minlength=count)[:count].tolist()
            if classes.get(name) != expected:
                agreement.wrong.append(wrong_field(result, f"extra.per_class.{name}", classes.get(name), expected))


def _name_missing_column(result: Result, columns: Columns, agreement: Agreement) -> None:
    name, start = _NAMED_COLUMNS.get(result.metric, ("", ""))
    present = [column.removeprefix(start) for column in columns if start and column.startswith(start)]
    if present:
        agreement.wrong.append(wrong_field(result, name, getattr(result, name), " or ".join(present[:8])))
    elif find_metric(result.metric).per_image is None and result.suite not in (PROTOCOL, ANALYSIS):
        agreement.cannot_verify("no registered metric has this name", result)
    else:
        agreement.cannot_verify("its values per image are not in the verdict file", result)


def _check_duplicates(lines: list[Result], agreement: Agreement) -> None:
    keys = [(result.metric, result.threat, result.attack, result.extra.get("column")) for result in lines]
    for number, result in enumerate(lines):
        if keys[number] in keys[:number]:
            agreement.wrong.append(wrong_field(result, "line", "a second line", "one line", "the evaluation"))


def _check_shared(lines: list[Result], agreement: Agreement) -> None:
    """Results of one evaluation were written together: they agree in model, data, device, versions, time …"""
    for name in SHARED:
        values = [getattr(result, name) for result in lines]
        usual = max(values, key=lambda value: sum(same_json(value, other) for other in values))
        for result, value in zip(lines, values, strict=True):
            if not same_json(value, usual):
                agreement.wrong.append(wrong_field(result, name, value, usual, "another line of the evaluation"))


def _check_counts(lines: list[Result], columns: Columns, agreement: Agreement) -> None:
    """Passes, unconfirmed successes and the number of images that each attack broke."""
    if not {*_COUNTED, "broken_by"} <= set(columns):
        return
    expected: dict[str, Any] = {name: int(columns[name].sum()) for name in _COUNTED}
    attacks = [name for name in columns["broken_by"] if name is not None]
    expected["broken_by"] = {name: attacks.count(name) for name in dict.fromkeys(attacks)}
    for result in lines:
        for name, value in expected.items():
            if not same_json(result.extra.get(name), value):
                agreement.wrong.append(wrong_field(result, f"extra.{name}", result.extra.get(name), value))


def _check_analysis(folder: Path, id: str, lines: list[Result], agreement: Agreement) -> None:
    """Results of an analysis agree with its record `analysis/ID.json`; the record itself is not recomputed."""
    try:
        finding = read_finding(finding_path(folder, id), lines) if is_id(id) else None
    except (UserError, OSError) as error:
        agreement.wrong.append(
            Disagreement(about="", field="record", stored=str(error), evidence="a record", source=f"analysis/{id}.json")
        )
        return
    expected = dict(finding.about) if finding is not None else {}
    expected = {name: expected[name] for name in SHARED if name in expected}
    expected |= {"attack": finding.analysis, "attack_settings": dict(finding.settings)} if finding is not None else {}
    for result in lines:
        for name, value in expected.items():
            if not same_json(getattr(result, name), value):
                agreement.wrong.append(wrong_field(result, name, getattr(result, name), value, f"analysis/{id}.json"))


def _check_image_rows(folder: Path, id: str, columns: Columns, agreement: Agreement) -> None:
    """No image may count as robust while an adversarial image of it lies in the folder."""
    index = columns["index"].tolist()
    rows = {number: row for row, number in enumerate(index)}
    for path in sorted(adversarial_folder(folder, id).glob("*.npz")):
        try:
            arrays = read_arrays(path, names=("index", "threat"))
        except UserError:
            agreement.cannot_verify(f"adversarial/{id}/{path.name} cannot be read")
            continue
        pairs = list(zip(arrays.get("index", np.empty(0)).tolist(), arrays.get("threat", ()), strict=False))
        strangers = [number for number, _ in pairs if number not in rows]
        if strangers:
            agreement.wrong.append(wrong_file(path.name, f"images of index {strangers[:5]}", "images of its rows only"))
        robust = [n for n, threat in pairs if n in rows and _is_robust(columns, str(threat), rows[n])]
        if robust:
            text = f"{len(robust)} images robust, the first at index {robust[0]}"
            found = "broken: an adversarial image of each of them is stored"
            agreement.wrong.append(
                Disagreement(about="", field="robust", stored=text, evidence=found, source=f"adversarial/{id}")
            )


def _is_robust(columns: Columns, threat: str, row: int) -> bool:
    values = columns.get(f"robust@{threat}")
    return values is None or bool(values[row])


# ---------------------------------------------------------------- the evidence record


def _check_record(folder: Path, id: str, lines: list[Result], columns: Columns | None, agreement: Agreement) -> None:
    try:
        record = read_evidence(folder, id)
    except UserError as error:
        agreement.wrong.append(Disagreement(about="", field="evidence", stored=str(error), evidence="a record of it"))
        return
    if record is None:
        agreement.has_record = False  # version 0.1.0 wrote none
        return
    for name, stored, expected in (
        ("evidence.digest", record.digest, record.own_digest),
        ("evidence.evaluation", record.evaluation, id),
        ("evaluation", id, record.own_id),
    ):
        if stored != expected:
            source = "its settings" if name == "evaluation" else RECORD
            agreement.wrong.append(Disagreement(about="", field=name, stored=stored, evidence=expected, source=source))
    if columns is not None and (digest := columns_digest(columns)) != record.verdicts:
        agreement.wrong.append(wrong_file("digest", digest, record.verdicts, RECORD))
    for result in lines:
        _check_line(result, record, agreement)
    if len(lines) < len(record.results):
        text = (f"{len(lines)} lines", f"{len(record.results)} lines")
        agreement.wrong.append(Disagreement(about="", field="results", stored=text[0], evidence=text[1], source=RECORD))


def _check_line(result: Result, record: Evidence, agreement: Agreement) -> None:
    before = len(agreement.wrong)
    for name in SHARED:
        if name in record.common and not same_json(getattr(result, name), record.common[name]):
            agreement.wrong.append(wrong_field(result, name, getattr(result, name), record.common[name], RECORD))
    for name, value in dict(record.common.get("extra", {})).items():
        if name in ("words", "parameters", "seconds") and not same_json(result.extra.get(name), value):
            agreement.wrong.append(wrong_field(result, f"extra.{name}", result.extra.get(name), value, RECORD))
    named = len(agreement.wrong) > before or any(wrong.about == label(result) for wrong in agreement.wrong)
    if result_digest(result) not in record.results and not named:
        digest = result_digest(result)
        agreement.wrong.append(wrong_field(result, "line", f"a line of digest {digest[:12]}", "no such line", RECORD))
