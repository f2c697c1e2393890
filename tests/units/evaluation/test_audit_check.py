"""A stored audit fits its verdicts: numbers of survivors and of the sample, its attacks, and the bound that follows."""

import numpy as np
import pytest

from hardtack.base.config import build
from hardtack.evaluation.audit_bound import bound
from hardtack.evaluation.audit_check import check_audit, expects_audit
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import make_suite

CONFIG = build(EvaluationConfig, {"suite": "autoattack", "tier": "fast", "threat": "linf:0.1"})
TRIALS = make_suite(CONFIG).threat_stages(CONFIG, 0)
COLUMNS = {"robust@linf:0.1": np.arange(200) < 100}
NAMES = [stage.name for stage in TRIALS[0].audit.stages]
ENTRY = {"threat": "linf:0.1", "survivors": 100, "sample": 25, "broken": 0, "attacks": NAMES, "escalation": "none"}
GENUINE = ENTRY | {"broken_by_escalation": 0} | bound(ENTRY)
ESCALATED = GENUINE | {"survivors": 140, "sample": 35, "broken": 3, "escalation": "full", "broken_by_escalation": 40}


@pytest.mark.parametrize("entry", [GENUINE, ESCALATED])
def test_a_genuine_audit_fits(entry):
    assert check_audit([entry], TRIALS, CONFIG, COLUMNS) == []


@pytest.mark.parametrize(
    "change, field",
    [
        ({"bound": 0.001}, "bound"), ({"at_most": 1}, "at_most"), ({"confidence": 0.999}, "confidence"),
        ({"survivors": 90}, "survivors"), ({"sample": 64}, "sample"), ({"attacks": ["square"]}, "attacks"),
        ({"broken": 26}, "broken"), ({"broken": -1}, "broken"), ({"broken": None}, "broken"),
        ({"broken": 2}, "escalation"), ({"threat": "linf:0.2"}, "threat"), ({"broken_by_escalation": 5}, "survivors"),
    ],
)  # fmt: skip
def test_a_changed_audit_is_named(change, field):
    wrong = check_audit([{**GENUINE, **change}], TRIALS, CONFIG, COLUMNS)
    assert any(entry.field.endswith(field) for entry in wrong), wrong


@pytest.mark.parametrize("stored", ["no list", [1], {"threat": "linf:0.1"}])
def test_what_is_no_audit_is_wrong(stored):
    assert check_audit(stored, TRIALS, CONFIG, COLUMNS)


def test_only_images_that_remain_correct_are_audited():
    assert expects_audit(TRIALS, CONFIG, COLUMNS, curve=False)
    assert not expects_audit(TRIALS, CONFIG, {"robust@linf:0.1": np.zeros(9, dtype=bool)}, curve=False)
