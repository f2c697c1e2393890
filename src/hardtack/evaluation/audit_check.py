"""The stored audit of a result: does it fit the verdicts and the settings, and is its bound the one that follows?

What the attacks on the sample found is the audit's own measurement; it is verified by measuring again only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardtack.evaluation.audit_bound import bound
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages
from hardtack.results.disagreement import Disagreement, same_number

Columns = Mapping[str, np.ndarray]
FIELD = "extra.audit"


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
