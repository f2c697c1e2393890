"""The audit of what attacks leave: its bound, its sample, its escalation, and what it writes into the columns."""

import math

import numpy as np
import pytest
import torch
from test_detectors import FALSE, Changed, Linear

import hardtack as ht
from hardtack.attacks import APGD, Square, autoattack
from hardtack.attacks.adaptive import AdaptiveAttack, GradientConfig
from hardtack.attacks.autoattack import Stage
from hardtack.evaluation.audit import merged
from hardtack.evaluation.threat_stages import AuditPlan
from hardtack.results import read_results, read_verdicts, verdicts_path
from hardtack.results.audit_bound import audit_line, most_breakable

# ---------------------------------------------------------------- the bound


def chance(broken, survivors, breakable, sample):
    ways = [math.comb(breakable, k) * math.comb(survivors - breakable, sample - k) for k in range(broken + 1)]
    return sum(ways) / math.comb(survivors, sample)


@pytest.mark.parametrize("survivors, sample, broken", [(10, 10, 0), (40, 16, 0), (300, 64, 0), (300, 64, 2), (7, 3, 1)])
def test_the_bound_is_the_largest_number_that_the_sample_does_not_refute(survivors, sample, broken):
    most = most_breakable(survivors, sample, broken)
    assert chance(broken, survivors, most, sample) >= 0.05 - 1e-12
    assert most == survivors - (sample - broken) or chance(broken, survivors, most + 1, sample) < 0.05


def test_of_many_survivors_none_of_64_bounds_what_was_missed_at_five_percent():
    assert most_breakable(100_000, 64, 0) / 100_000 == pytest.approx(1 - 0.05 ** (1 / 64), abs=2e-3)
    assert most_breakable(50, 50, 0) == 0, "where all were looked at, nothing is left to chance"


def test_the_sample_is_a_quarter_within_limits_unless_it_is_chosen():
    assert [AuditPlan().size(n) for n in (0, 5, 40, 100, 10_000)] == [0, 5, 16, 25, 64]
    assert AuditPlan(sample=200).size(150) == 150 and AuditPlan(sample=0).size(150) == 0


# ---------------------------------------------------------------- evaluations


def images(model, count=32):
    """Half of them near the decision boundary and half far from it."""
    generator = torch.Generator().manual_seed(0)
    x = 0.5 + 0.02 * torch.randn(count, 3, 8, 8, generator=generator)
    x[::2] = 0.5 + 0.25 * torch.randn(count // 2, 3, 8, 8, generator=generator)
    x = x.clamp(0.05, 0.95)
    return x, model(x).argmax(dim=1).detach()


def measure(model, *, count=32, **settings):
    given = {"suite": "autoattack", "tier": "fast", "threat": "linf:0.01", "quiet": True}
    return ht.evaluate(model.eval(), images(model, count), **{**given, **settings})


@pytest.fixture(scope="module", autouse=True)
def short(short_audits):
    """Full audits, and a short full list: the search by values alone, which no gradient fools."""

    def stages(threat, *, seed=0):
        ascent = APGD(threat=threat, loss="margin", steps=5, seed=seed)
        estimated = AdaptiveAttack(attack=ascent, gradients=GradientConfig(nes={"sigma": 0.005, "samples": 64}))
        return [Stage(Square(threat=threat, steps=200, rescale=True, seed=seed)), Stage(estimated)]

    def official(threat, version):
        return [APGD(threat=threat, loss="ce", steps=10), Square(threat=threat, steps=50)]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in short_audits.items():
            patch.setattr(autoattack, name, value)
        for place in ("evaluation.suites", "attacks"):
            patch.setattr(f"hardtack.{place}.autoattack.full_stages", stages)
        patch.setattr(autoattack, "_official", official)
        patch.setattr(autoattack, "_stronger", lambda threat: [])
        yield


def codes(measured):
    return {flag["code"] for flag in measured.flags if flag["level"] == "red"}


@pytest.fixture(scope="module")
def honest():
    return measure(Linear())


def test_an_honest_model_is_audited_and_keeps_its_number(honest):
    (facts,) = honest.results[-1].extra["audit"]
    assert 0.2 < honest.robust_accuracy < 0.9 and not codes(honest)
    assert facts["survivors"] == int(honest.robust.sum()) and facts["sample"] == min(16, facts["survivors"])
    assert facts["broken"] == 0 and facts["escalation"] == "none" and 0 <= facts["bound"] < 0.2
    line = next(line for line in str(honest).split("\n") if line.startswith("audit"))
    assert f"0 of {facts['sample']}" in line and "95% confidence" in line and f"{facts['bound']:.1%}" in line
    assert honest.robust_accuracy == measure(Linear(), audit=0).robust_accuracy


@pytest.mark.parametrize("kind", ["scrambled", "most pixels masked", "ripple"])
def test_where_the_gradient_is_false_fast_finds_the_true_number_or_is_red(kind, honest):
    model = Changed(**FALSE[kind])
    found, fooled = measure(model), measure(model, audit=0)
    assert found.robust_accuracy <= honest.robust_accuracy + 1 / 32 or codes(found)
    if kind != "ripple":
        assert fooled.robust_accuracy > honest.robust_accuracy + 1 / 32, "this example fools nobody"
        assert "masked_gradients" in codes(found)
        (facts,) = found.results[-1].extra["audit"]
        assert facts["escalation"] == "full" and facts["broken_by_escalation"] > 0
    assert not any(flag["code"] == "fault" for flag in found.flags)


@pytest.mark.parametrize("settings", [{"tier": "exact"}, {"suite": "pgd", "tier": "verified"}], ids=["exact", "pgd"])
def test_a_list_that_is_fixed_keeps_its_number_and_says_that_it_is_wrong(settings):
    with_audit, without = (measure(Changed(**FALSE["scrambled"]), threat="linf:0.01", **settings, **extra)
                           for extra in ({}, {"audit": 0}))  # fmt: skip
    assert with_audit.robust_accuracy == without.robust_accuracy
    assert with_audit.robust_accuracy == 0 or "gradient_mismatch" in codes(with_audit)
    assert (with_audit.verdicts["robust"] == without.verdicts["robust"]).all()


def test_max_breaks_whatever_another_tier_breaks():
    for kind in ("scrambled", "most pixels masked"):
        model = Changed(**FALSE[kind])
        robust = {tier: measure(model, count=12, tier=tier).robust for tier in ("fast", "verified", "max")}
        for tier in ("fast", "verified"):
            assert not (robust["max"] & ~robust[tier]).any(), (kind, tier)


def test_chunks_and_folders_change_nothing(tmp_path):
    model = Changed(**FALSE["most pixels masked"])
    whole = measure(model)
    parts = measure(model, chunk_size=7, batch_size=5, folder=tmp_path)
    assert (whole.robust == parts.robust).all()
    (facts,), (expected,) = (part.results[-1].extra["audit"] for part in (parts, whole))
    for name, value in facts.items():
        assert expected[name] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), name
    assert (whole.verdicts["broken_by"] == parts.verdicts["broken_by"]).all()
    stored = read_verdicts(verdicts_path(tmp_path, parts.id))
    assert (stored["robust"] == parts.robust).all()
    kept = [np.load(path)["index"] for path in (tmp_path / "adversarial" / parts.id).glob("*.npz")]
    broken = np.flatnonzero(~parts.robust & parts.verdicts["clean_correct"])
    assert sorted(np.concatenate(kept).tolist()) == broken.tolist(), "every broken image has its evidence"
    assert read_results(tmp_path)[-1].extra["audit"] == [facts]
    again = measure(model, chunk_size=7, batch_size=5, folder=tmp_path)
    assert again.results == parts.results, "recalled"


def test_examples_show_what_the_audit_broke():
    model = Changed(**FALSE["most pixels masked"])
    found = measure(model, examples=12)
    images = torch.from_numpy(found.examples["x_adv"]).permute(0, 3, 1, 2)
    predicted = model(images).argmax(dim=1).numpy()
    assert (predicted == found.examples["adversarial_prediction"]).all()
    assert ((predicted != found.examples["label"]) == ~found.robust[:12]).all()


# ---------------------------------------------------------------- columns


def test_merging_writes_only_what_was_broken():
    columns = {
        "robust@a": np.array([True, True, False]), "robust@b": np.array([True, False, True]),
        "robust": np.array([True, False, False]), "broken_by": np.array([None, "pgd b", "pgd a"], dtype=object),
        "broken_at_step": np.array([-1, 2, 3]), "target": np.array([-1, -1, -1]), "size": np.array([0.1, 0.2, 0.3]),
        "adversarial_prediction": np.array([0, 5, 6]), "forwards": np.array([1, 1, 1]),
        "backwards": np.array([1, 1, 1]), "zero_gradient": np.zeros(3, bool), "not_finite": np.zeros(3, bool),
        "unverified": np.array([True, False, False]), "silent_success": np.zeros(3, bool),
        "flat_loss": np.array([True, True, False]),
    }  # fmt: skip
    rows = np.array([0, 1])
    found = {name: value[rows].copy() for name, value in columns.items()} | {
        "robust@a": np.array([False, False]), "broken_by": np.array(["square a", "square a"], dtype=object),
        "adversarial_prediction": np.array([7, 8]), "forwards": np.array([10, 20]),
    }  # fmt: skip
    result = merged(columns, rows, found, "a")
    assert result["robust@a"].tolist() == [False, False, False] and result["robust"].tolist() == [False, False, False]
    assert result["broken_by"].tolist() == ["square a", "pgd b", "pgd a"], "the first threat that broke it counts"
    assert result["adversarial_prediction"].tolist() == [7, 5, 6] and result["forwards"].tolist() == [11, 21, 1]
    assert not result["unverified"].any() and not result["flat_loss"].any()
    assert columns["robust@a"].tolist() == [True, True, False], "the columns given are not changed"


def test_a_line_is_printed_only_of_attacks():
    assert audit_line({"threat": "linf:0.1", "attacks": []}) == ""
