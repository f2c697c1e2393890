"""A stored audit fits its verdicts: numbers of survivors and of the sample, its attacks, and the bound that follows."""

import numpy as np
import pytest

from forgeries import audit_of, change_extra, lines_of, reseal, write_lines
from hardtack.base.config import build
from hardtack.commands.cli import main
from hardtack.evaluation.audit_check import check_audit, expects_audit
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import make_suite
from hardtack.results import read_results
from hardtack.results.audit_bound import bound
from hardtack.results.evidence import read_evidence
from tiny_runs import Linear, images

CONFIG = build(EvaluationConfig, {"suite": "autoattack", "tier": "fast", "threat": "linf:0.1"})
TRIALS = make_suite(CONFIG).threat_stages(CONFIG, 0)
COLUMNS = {"robust@linf:0.1": np.arange(200) < 100}
NAMES = [stage.name for stage in TRIALS[0].audit.stages]
SOUND = {"agreement": 0.99, "descent": 1.0, "unconstrained": 1.0, "stability": 1.0}
ENTRY = SOUND | {
    "threat": "linf:0.1",
    "survivors": 100,
    "sample": 25,
    "broken": 0,
    "attacks": NAMES,
    "escalation": "none",
}
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
        ({"agreement": None}, "agreement"),
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


# ---------------------------------------------------------------- flags of a model that hides its gradients

MODEL = """
import torch
from tiny_runs import Linear

class Scrambled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        signs = torch.rand(gradient.shape[1:], generator=torch.Generator().manual_seed(0)) > 0.5
        return gradient * (signs * 2.0 - 1)

class Net(Linear):
    def forward(self, x):
        return super().forward(Scrambled.apply(x))

def build():
    return Net()
"""
WORDS = ["model=mine.py:build", "model.num_classes=4", "model.image_size=8", "data=npz:d.npz", "runtime.device=cpu"]


@pytest.fixture
def masked(tmp_path, monkeypatch):
    """A run of a model with scrambled gradients, whose red flags come from the audit: (folder, evaluation)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL)
    x = (images(40) * 255).byte()
    y = Linear()(x.float() / 255).argmax(dim=1)
    pixels = x.permute(0, 2, 3, 1).numpy()
    np.savez("d.npz", x_train=pixels, y_train=y.numpy(), x_test=pixels, y_test=y.numpy())
    assert main(["evaluate", *WORDS, "suite=pgd", "threat=linf:0.02", "attack.steps=5", "output=run"]) == 0
    (id,) = {result.evaluation for result in read_results("run")}
    assert {"gradient_mismatch"} <= {flag["code"] for flag in read_results("run")[-1].flags}
    return tmp_path / "run", id


def verify(capsys):
    capsys.readouterr()
    code = main(["verify", "run", "model=mine.py:build"])
    return code, capsys.readouterr().out


def remove_flags(folder, id):
    write_lines(folder, [{**line, "flags": []} for line in lines_of(folder)])
    assert read_evidence(folder, id).flags
    reseal(folder, id, flags=[])


def test_flags_of_the_audit_cannot_be_removed(masked, capsys):
    assert verify(capsys)[0] == 0
    remove_flags(*masked)
    code, text = verify(capsys)
    assert code == 1 and "flags: stored no flag gradient_mismatch" in text, text


def test_nor_with_better_findings_of_the_audit(masked, capsys):
    remove_flags(*masked)
    change_extra(masked[0], audit=[{**audit_of(masked[0])[0], **SOUND}])
    reseal(*masked, flags=[])
    code, text = verify(capsys)
    assert code == 1 and "flags: stored no flag gradient_mismatch, expected gradient_mismatch (the model)" in text, text
    assert "extra.audit.linf:0.02.agreement: stored 0.99, expected" in text
