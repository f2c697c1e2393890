"""An evaluation reconstructed from its stored settings, the model and the data: its id, and what its results must be.

Nothing is attacked. The settings give the attacks, the threats and the id; the model and the images give their digests
and the checks before the attacks; the verdict columns give the numbers. A stored result must have all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.attacks.input_guard import guard_input
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.evaluation.audit_check import (
    FIELD,
    FINDINGS,
    check_audit,
    examine_again,
    expected_codes,
    expects_audit,
)
from hardtack.evaluation.identity import Identity, evaluation_id
from hardtack.evaluation.job import EvaluationJob
from hardtack.evaluation.recomputation import compare_results, match_results
from hardtack.evaluation.sanity import Flag
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suite import SuiteJob
from hardtack.evaluation.suites import make_suite
from hardtack.evaluation.summary import summarise
from hardtack.evaluation.target import Target
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages
from hardtack.models.from_file import place_of
from hardtack.results import Result
from hardtack.results.disagreement import Disagreement, label
from hardtack.results.evidence import Evidence, result_digest, same_json

Columns = Mapping[str, np.ndarray]
SETTINGS, MODEL = "its settings", "the model"
FIELDS = (
    "metric", "value", "low", "high", "n", "interval", "threat", "attack", "attack_settings", "protocol", "suite",
    "data", "data_description", "model", "checkpoint", "weights_sha256", "seed", "precision",
)  # fmt: skip
# nobody but the machine that measured knows these
UNVERIFIABLE = ("run", "device", "seconds", "created", "versions")
_FINDING_TOLERANCE = 0.1  # shares of up to 32 images, of which rounding may change a few
_UNKNOWN_EXTRA = ("words", "seconds")
# flags of checks that every version makes before the attacks
_ALWAYS_CHECKED = frozenset(
    {"random_outputs", "batch_dependent", "constant_outputs", "dynamic", "other_classes", "class_names", "untrained",
     "few_classes", "no_attention"}
)  # fmt: skip


@dataclass
class Reconstruction:
    """What is wrong with the stored results of an evaluation, and what could not be verified."""

    wrong: list[str] = field(default_factory=list)
    unverifiable: list[str] = field(default_factory=list)


def reconstruct(
    folder: Path,
    target: Target,
    job: EvaluationJob,
    config: EvaluationConfig,
    lines: Sequence[Result],
    columns: Columns,
    *,
    record: Evidence | None,
    typed: Mapping[str, Any],
) -> Reconstruction:
    """Compare every field of the stored `lines` with what their settings, the model, the data and the verdicts give.

    `typed`: settings that the user gave to `verify`; data, files or a model at another place have another name there.
    """
    outcome = Reconstruction()
    provenance = dataclasses.replace(target.provenance, words=tuple(lines[0].extra.get("words", ())))
    suite_job = SuiteJob(
        target.model, target.data, config, runtime=job.runtime, folder=folder, provenance=provenance
    )  # fmt: skip
    other_attacks = _check_id(suite_job.identity, lines, record, typed, outcome)
    try:
        with guard_input(target.model) as suite_job.guard:
            suite_job.begin()
        identity = suite_job.measure.complete(suite_job.identity)
        found = suite_job.flags if _same_kind_of_device(lines[0], job.runtime) else []
        flags = _measured_flags(found, lines, record, outcome)
        audit = lines[0].extra.get("audit", [])
        expected = summarise(identity, dict(columns), {}, flags, None, seconds=0.0, audit=audit).results
    except (UserError, KeyError, TypeError) as error:
        outcome.wrong.append(f"its numbers cannot be computed again from its verdict file: {error}")
        return outcome
    names = _compared_fields(lines[0], job, config, typed, other_attacks, outcome)
    wrong = compare_results(lines, expected, names, source=SETTINGS)
    pairs, _, _ = match_results(lines, expected)
    for stored, other in pairs:
        wrong += _compare_flags(stored, other, exact=record is not None)
        wrong += _compare_extra(stored, other, record, outcome, skip=("stages",) if other_attacks else ())
    wrong += _check_audit(suite_job, lines, columns, record, outcome)
    outcome.wrong += [str(entry) for entry in wrong]
    return outcome


def _check_audit(
    suite_job: SuiteJob, lines: Sequence[Result], columns: Columns, record: Evidence | None, outcome: Reconstruction
) -> list[Disagreement]:
    """The stored audit and its flags, or its absence: only version 0.1.0, which wrote no record, made no audit."""
    trials, config, stored = suite_job.trials, suite_job.config, lines[0].extra.get("audit", [])
    curve = suite_job.identity.suite.curve
    if not stored:
        if record is None or suite_job.random or not expects_audit(trials, config, columns, curve=curve):
            return []
        return [Disagreement(about="", field=FIELD, stored="no audit", evidence="an audit", source=SETTINGS)]
    outcome.unverifiable.append("extra.audit: what its attacks broke in the sample; verified by measuring again only")
    wrong = check_audit(stored, trials, config, columns)
    if wrong:
        return wrong
    codes = {flag["code"] for result in lines for flag in result.flags}
    by_threat = {str(trial.threat): trial for trial in trials}
    for entry in stored:
        trial = by_threat[str(entry["threat"])]
        for code in sorted(expected_codes(entry, trial, config, columns) - codes):
            wrong.append(Disagreement(about="", field="flags", stored=f"no flag {code}", evidence=code, source=FIELD))
        if _same_kind_of_device(lines[0], suite_job.runtime):
            wrong += _examine_again(suite_job, entry, trial, columns, codes)
    return wrong


def _examine_again(
    suite_job: SuiteJob, entry: Mapping[str, Any], trial: ThreatStages, columns: Columns, codes: set[str]
) -> list[Disagreement]:
    """The detectors again, on the model: what they find must be stored, and so must the flags that follow."""
    plan = trial.audit or AuditPlan(sample=suite_job.config.audit)
    assert isinstance(suite_job.data, Dataset)
    findings = examine_again(
        suite_job.model, suite_job.data, trial, plan, columns, most=suite_job.measure.batch_size,
        runtime=suite_job.runtime,
    )  # fmt: skip
    if findings is None:
        return []
    found = {name: getattr(findings, name) for name in FINDINGS}
    follow = expected_codes({**entry, **found}, trial, suite_job.config, columns) - codes
    wrong = [
        Disagreement(about="", field="flags", stored=f"no flag {c}", evidence=c, source=MODEL) for c in sorted(follow)
    ]
    if entry.get("broken_by_escalation") or suite_job.runtime.torch_device.type != "cpu":
        return wrong  # another sample, or other rounding
    return wrong + [
        Disagreement(about="", field=f"{FIELD}.{trial.threat}.{name}", stored=entry[name], evidence=value, source=MODEL)
        for name, value in found.items()
        if not abs(float(entry[name]) - value) <= _FINDING_TOLERANCE
    ]


# ---------------------------------------------------------------- the id


def _check_id(
    identity: Identity,
    lines: Sequence[Result],
    record: Evidence | None,
    typed: Mapping[str, Any],
    outcome: Reconstruction,
) -> bool:
    """Compare the id with the digest of the facts; True if the attacks are another version's."""
    suite, id, facts = lines[0].suite, lines[0].evaluation, dict(identity.facts)
    # The same images at another place, or cut for a model that was named, are described differently. Their digest is
    # among the facts too, and a description that was changed does not have the id.
    if "data" in typed:
        facts["data"] = lines[0].data
    if "data" in typed or "model" in typed:
        facts["data_description"] = lines[0].data_description
    if evaluation_id(suite, facts) == id:
        return False
    if identity.older_id == id:
        outcome.unverifiable.append("the images: the ids of version 0.1.0 have no digest of these; labels agree")
        return False
    stored_attacks = [
        [result.threat, result.attack, result.extra["stages"]]
        for result in lines
        if result.metric == "robust_accuracy" and isinstance(result.extra.get("stages"), list)
    ]
    if stored_attacks and evaluation_id(suite, {**facts, "attacks": stored_attacks}) == id:
        outcome.unverifiable.append("the attacks are another version's: this version has another list under this name")
        return True
    if record is None or record.own_id != id:
        wrong = Disagreement(
            about="", field="evaluation", stored=id, evidence=evaluation_id(suite, facts), source="its settings"
        )
        outcome.wrong.append(str(wrong))
        return False
    moved = {"views"} if "files" in typed else set()
    moved |= {"architecture"} if "model" in typed else set()
    for name in [*record.facts, *(name for name in facts if name not in record.facts)]:
        stored, found = record.facts.get(name), facts.get(name)
        if same_json(stored, found):
            continue
        if name in moved or (name == "version" and same_json(stored, lines[0].versions.get("hardtack"))):
            outcome.unverifiable.append(
                f"{name}: it was {_short(stored)} where it was measured, and is {_short(found)} here"
            )
            continue
        source = (
            "the model" if name in ("weights", "architecture") else "the data" if name == "images" else "its settings"
        )
        outcome.wrong.append(str(Disagreement(about="", field=name, stored=stored, evidence=found, source=source)))
    return False


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


# ---------------------------------------------------------------- fields


def _compared_fields(
    first: Result,
    job: EvaluationJob,
    config: EvaluationConfig,
    typed: Mapping[str, Any],
    other_attacks: bool,
    outcome: Reconstruction,
) -> list[str]:
    """The fields that can be compared here; the others are named as not verifiable."""
    skipped: dict[str, str] = {}
    if not _same_kind_of_device(first, job.runtime):
        skipped["precision"] = "it was measured on another kind of device"
    elif (
        job.runtime.torch_device.type != "cpu"
        or job.runtime.precision != "fp32"
        or make_suite(config).chooses_precision(config)
    ):
        skipped["precision"] = "it is chosen while measuring, by the device and the model"
    if "model" in typed or "run" in typed:
        named = ("checkpoint", "weights_sha256", *(() if _has_own_name(typed) else ("model",)))
        skipped |= dict.fromkeys(named, "the model was named by you")
    skipped |= {"data": "the data was named by you"} if "data" in typed else {}
    compared = [name for name in FIELDS if name not in skipped]
    if "data" in typed or "model" in typed:
        compared.remove("data_description")  # the id covers it
    if other_attacks:
        skipped |= dict.fromkeys(("attack", "attack_settings"), "the attacks are another version's")
    for reason in dict.fromkeys(skipped.values()):
        names = ", ".join(name for name, other in skipped.items() if other == reason)
        outcome.unverifiable.append(f"{names}: {reason}")
    return [name for name in compared if name not in skipped]


def _same_kind_of_device(result: Result, runtime: Runtime) -> bool:
    """Whether checks of the model compute here what they computed where it was measured."""
    return result.device.startswith("cpu") == (runtime.torch_device.type == "cpu")


def _has_own_name(typed: Mapping[str, Any]) -> bool:
    """Whether the model that the user named has the same name everywhere; code of a user's is named by its path."""
    model = typed.get("model")
    name = model.get("name", "") if isinstance(model, Mapping) else str(model or "")
    return place_of(str(name)) is None


def _measured_flags(
    found: Sequence[Flag], lines: Sequence[Result], record: Evidence | None, outcome: Reconstruction
) -> list[Flag]:
    """The flags to expect besides those that follow from the verdicts: the recorded ones, or those found now.

    A check before the attacks that fires now must be recorded. A flag that was raised during or after the attacks, or
    by a check that this version does not make, can only be confirmed by measuring again.
    """
    stored = {flag["code"] for result in lines for flag in result.flags}
    if record is None:
        return [flag for flag in found if flag["code"] in stored | _ALWAYS_CHECKED]
    recorded = [dict(flag) for flag in record.flags]
    codes = {flag.get("code") for flag in recorded}
    for flag in found:
        if flag["code"] not in codes:
            text = f"no {flag['level']} flag {flag['code']}"
            wrong = Disagreement(about="", field="flags", stored=text, evidence=flag["message"], source=MODEL)
            outcome.wrong.append(str(wrong))
    for code in sorted(str(code) for code in codes - {flag["code"] for flag in found}):
        outcome.unverifiable.append(f"flag {code}: it was raised while measuring; verified by measuring again only")
    return recorded


def _compare_flags(stored: Result, expected: Result, *, exact: bool) -> list[Disagreement]:
    names = ("level", "code", "message") if exact else ("level", "code")
    mine, theirs = ([[flag.get(name) for name in names] for flag in result.flags] for result in (stored, expected))
    if sorted(map(str, mine)) == sorted(map(str, theirs)):
        return []
    shown = [[" ".join(map(str, flag[:2])) for flag in flags] or ["none"] for flags in (mine, theirs)]
    if shown[0] == shown[1]:
        shown = [[str(flag[-1]) for flag in flags] for flags in (mine, theirs)]
    return [
        Disagreement(
            about=label(stored), field="flags", stored=", ".join(shown[0]), evidence=", ".join(shown[1]),
            source="the checks and verdicts",
        )
    ]  # fmt: skip


def _compare_extra(
    stored: Result, expected: Result, record: Evidence | None, outcome: Reconstruction, *, skip: Sequence[str]
) -> list[Disagreement]:
    """Further fields. One that nothing here gives is tied to the record, or has no evidence at all."""
    wrong = []
    tied = record is not None and result_digest(stored) in record.results
    for name in dict.fromkeys([*stored.extra, *expected.extra]):
        if name in (*_UNKNOWN_EXTRA, *skip) or same_json(stored.extra.get(name), expected.extra.get(name)):
            continue
        if name not in expected.extra and tied:
            text = f"extra.{name}: it was found while measuring; verified by measuring again only"
            outcome.unverifiable.append(text) if text not in outcome.unverifiable else None
            continue
        if name not in stored.extra and record is None:
            continue  # a field that an earlier version did not store
        found = expected.extra.get(name, "no such field")
        wrong.append(
            Disagreement(
                about=label(stored), field=f"extra.{name}", stored=stored.extra.get(name), evidence=found,
                source="the verdict file",
            )
        )  # fmt: skip
    return wrong
