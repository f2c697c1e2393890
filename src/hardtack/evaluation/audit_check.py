"""The stored audit of a result: does it fit the verdicts and the settings, and is its bound the one that follows?

What the detectors find is computed again with the model, and a red flag that follows must be stored. What the attacks
on the sample broke is the audit's own measurement; it is verified by measuring again only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.evaluation.audit import POINT, draw_sample
from hardtack.evaluation.detectors import SAMPLE, Findings, examine
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages
from hardtack.results.audit_bound import bound
from hardtack.results.disagreement import Disagreement, same_number

Columns = Mapping[str, np.ndarray]
FIELD = "extra.audit"
FINDINGS = ("agreement", "descent", "unconstrained", "stability")


def check_audit(
    stored: Any, trials: Sequence[ThreatStages], config: EvaluationConfig, columns: Columns
) -> list[Disagreement]:
    """A line for every number of the stored audits (`extra.audit`, one entry for each threat) that does not fit."""
    if not isinstance(stored, list) or not all(isinstance(entry, dict) for entry in stored):
        return [_wrong("", stored, "a list of audits")]
    by_threat = {str(trial.threat): trial for trial in trials}
    wrong = []
    for entry in stored:
        threat = str(entry.get("threat"))
        if threat not in by_threat or f"robust@{threat}" not in columns:
            wrong.append(_wrong(".threat", threat, " or ".join(by_threat)))
            continue
        odd = [name for name in FINDINGS if not isinstance(entry.get(name), int | float)]
        if odd:
            wrong.append(_wrong(f".{threat}.{odd[0]}", entry.get(odd[0]), "a number"))
            continue
        expected = _expected(entry, by_threat[threat], config, int(columns[f"robust@{threat}"].sum()))
        wrong += [
            _wrong(f".{threat}.{name}", entry.get(name), value)
            for name, value in expected.items()
            if not same_number(entry.get(name), value)
        ]
    return wrong


def expects_audit(trials: Sequence[ThreatStages], config: EvaluationConfig, columns: Columns, *, curve: bool) -> bool:
    """Whether this version audits such an evaluation: some image remains correct at a threat with a sample."""
    return any(
        (trial.audit or AuditPlan(sample=config.audit)).size(int(columns[f"robust@{trial.threat}"].sum())) > 0
        for trial in (trials[-1:] if curve else trials)
        if f"robust@{trial.threat}" in columns and trial.threat.eps
    )


def expected_codes(
    entry: Mapping[str, Any], trial: ThreatStages, config: EvaluationConfig, columns: Columns
) -> set[str]:
    """The codes of the flags that follow from a stored audit."""
    plan, left = trial.audit or AuditPlan(sample=config.audit), int(columns[f"robust@{trial.threat}"].sum())
    survivors, least = left + int(entry.get("broken_by_escalation") or 0), POINT * len(columns["index"])
    findings = Findings(images=0, **{name: float(entry[name]) for name in FINDINGS})
    codes = {flag["code"] for flag in findings.flags(trial.threat)} if left > least else set()
    if plan.escalation and survivors - left > least:
        codes.add("masked_gradients")
    if not plan.escalation and entry.get("broken"):
        codes.add("audit_failed")
    return codes


def examine_again(
    model: nn.Module,
    data: Dataset,
    trial: ThreatStages,
    plan: AuditPlan,
    columns: Columns,
    *,
    most: int,
    runtime: Runtime,
) -> Findings | None:
    """What the detectors find on the sample of images that count as robust; None if there are none.

    It is the sample of the audit itself, unless an escalation broke some of its images. `most`: images at once.
    """
    survivors = np.flatnonzero(columns[f"robust@{trial.threat}"])
    if not len(survivors) or plan.size(len(survivors)) == 0 or trial.threat.eps == 0:
        return None
    place = {int(number): row for row, number in enumerate(data.index)}
    numbers = columns["index"][draw_sample(survivors, plan.size(len(survivors)), runtime.seed)].tolist()
    rows = [place[number] for number in numbers if number in place][: min(SAMPLE, most)]
    if not rows:
        return None
    batch = data.batch(rows, runtime.torch_device)
    return examine(model, batch.x.clamp(0, 1), batch.y, batch.index, threat=trial.threat, runtime=runtime)


def _expected(entry: Mapping[str, Any], trial: ThreatStages, config: EvaluationConfig, left: int) -> dict[str, Any]:
    plan = trial.audit or AuditPlan(sample=config.audit)
    survivors = left + int(entry.get("broken_by_escalation") or 0)
    sample, broken = plan.size(survivors), entry.get("broken")
    numbers = {"survivors": survivors, "sample": sample, "attacks": [stage.name for stage in plan.stages]}
    if not isinstance(broken, int) or not 0 <= broken <= sample:
        return {**numbers, "broken": f"a number up to {sample}"}
    escalated = entry.get("escalation", "none") != "none"
    if plan.escalation and broken and not escalated:
        return {**numbers, "escalation": "audit or full"}
    bounded = bool(plan.stages) and not escalated
    return numbers | (bound({**numbers, "broken": broken}) if bounded else {})


def _wrong(path: str, stored: Any, expected: Any) -> Disagreement:
    return Disagreement(
        about="", field=f"{FIELD}{path}", stored=stored, evidence=expected, source="the verdicts and the settings"
    )
