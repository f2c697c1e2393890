"""What a patch attack takes from the model is part of its number: how large, how many, chosen how."""

import functools

import pytest
import torch

import hardtack as ht
from hardtack.base import registry
from hardtack.base.errors import UserError
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.attacks import AttacksSuite
from hardtack.evaluation.suites.curve import CurveSuite
from hardtack.evaluation.suites.pgd import PgdSuite
from hardtack.evaluation.suites.sweep import SweepSuite
from hardtack.evaluation.threat_stages import make_attack
from hardtack.results import Run, comparable, leaderboard
from hardtack.threats import Threat

X = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def measured(name="vit_digits", y=None, **settings):
    model = ht.load_model(name, num_classes=10, image_size=32, seed=0)
    with torch.no_grad():
        labels = model(X).argmax(1) if y is None else y(model(X).argmax(1))
    given = {"attack": {"name": "patch_fool", "steps": 2}, "quiet": True, **settings}
    return ht.evaluate(model, (X, labels), **given).results[-1]


@functools.cache
def usual(name="vit_digits"):
    """With the settings of this file; several tests compare with it."""
    return measured(name)


def run(label, result, path):
    return Run(path=path / label, label=label, results=[result])


def test_patches_of_another_size_or_choice_stand_in_another_table(tmp_path):
    by_attention, by_saliency = usual(), usual("timm:xcit_nano_12_p8_224")
    smaller = measured(attack={"name": "patch_fool", "steps": 2, "patch_size": 4})
    written_out = measured(attack={"name": "patch_fool", "steps": 2, "patch_size": 8, "choose": "attention"})
    found = leaderboard([run(str(n), r, tmp_path) for n, r in enumerate((by_attention, by_saliency, smaller))])
    assert [len(table.rows) for table in found] == [1, 1, 1]
    assert comparable(by_attention) == comparable(written_out), "the same attack, however it was asked for"
    assert by_attention.extra["limits"] == "1 patch of 8×8, chosen by attention"
    assert by_saliency.extra["limits"] == "1 patch of 8×8, chosen by saliency"
    assert "patch_size=8 choose=saliency" in by_saliency.attack


def test_what_is_done_for_want_of_attention_is_a_flag():
    (flag,) = [flag for flag in usual("timm:xcit_nano_12_p8_224").flags if flag["code"] == "no_attention"]
    assert flag["level"] == "yellow" and "chosen by saliency and no attention is drawn" in flag["message"]
    assert not [flag for flag in usual().flags if flag["code"] == "no_attention"]


def test_occlusion_says_how_many_patches_were_covered():
    tenth, two = (measured(attack={"name": "occlusion", **more}) for more in ({}, {"patches": 2}))
    assert tenth.extra["limits"] == two.extra["limits"] == "2 patches of 8×8, chosen at random"
    assert comparable(tenth) == comparable(two)
    both = measured(
        suite="attacks",
        attack={},
        attacks=["patch_fool", "occlusion"],
        threat="linf:1",
        y=lambda right: (right + 1) % 10,
    )
    assert both.extra["limits"] == "1 patch of 8×8, chosen by attention or 2 patches of 8×8, chosen at random"
    assert "limits" not in measured(attack={"steps": 1}).extra, "a ball is its own limit"


@pytest.mark.parametrize(
    "name, more, words",
    [
        ("timm:resnet18", {}, "patch_size=4"),
        ("vit_digits", {"block": 4}, "block=4"),
        ("vit_digits", {"patches": 17}, "only 16 patches"),
    ],
)
def test_settings_are_checked_though_every_image_is_wrong(name, more, words):
    with pytest.raises(UserError, match=words):
        measured(name, lambda right: (right + 1) % 10, attack={"name": "patch_fool", "steps": 2, **more})


def test_a_result_counts_the_models_parameters():
    model = ht.load_model("vit_digits", seed=0)
    assert measured(suite="clean", attack={}).extra["parameters"] == sum(p.numel() for p in model.parameters())


# ---------------------------------------------------------------- the threat of an attack that brings its own


@pytest.mark.parametrize(
    "attack", [{"name": "patch_fool", "steps": 12}, {"name": "occlusion", "tries": 5, "share": 0.5}]
)
def test_a_list_of_one_attack_has_the_verdicts_of_the_attack_alone(attack):
    model = ht.load_model("vit_digits", num_classes=10, image_size=32, seed=0)
    with torch.no_grad():
        data = (X, model(X).argmax(1))
    alone = ht.evaluate(model, data, suite="pgd", attack=attack, quiet=True)
    listed = ht.evaluate(model, data, suite="attacks", attacks=[attack], quiet=True)
    assert alone.robust.tolist() == listed.robust.tolist() and not alone.robust.all()
    for field in ("threat", "value", "n"):
        assert getattr(alone.results[-1], field) == getattr(listed.results[-1], field)
    assert listed.results[-1].threat == "linf:1"
    assert listed.results[-1].extra["limits"] == alone.results[-1].extra["limits"]


@pytest.mark.parametrize("name", registry.attacks.names())
def test_every_attack_has_one_default_threat_in_all_suites(name):
    attack = {"name": name, **({"source": ht.load_model("vit_digits", depth=1)} if name == "transfer" else {})}
    alone = PgdSuite().threat(EvaluationConfig(suite="pgd", attack=attack))
    config = EvaluationConfig(suite="attacks", attacks=(attack,))
    assert AttacksSuite().threat(config) == alone == AttacksSuite().threat_stages(config, 0)[0].threat
    for suite, kind in (("sweep", SweepSuite), ("curve", CurveSuite)):
        assert kind().threat(EvaluationConfig(suite=suite, attack=attack)) == alone
    limited = bool(make_attack(attack, None, 0).limits)
    assert not limited or alone == Threat.parse("linf:1"), "what is limited by patches is not limited by a ball too"


@pytest.mark.parametrize("names", [("patch_fool", "apgd_ce"), ("square", "occlusion"), ("patch_fool", "cw")])
def test_a_list_that_mixes_threats_is_refused_unless_one_is_given(names):
    with pytest.raises(UserError, match=r"different threats: .*linf:1 \(.*patch.*give one threat.*threat=linf:8/255"):
        AttacksSuite().threat_stages(EvaluationConfig(suite="attacks", attacks=names), 0)
    config = EvaluationConfig(suite="attacks", attacks=names, threat=Threat.parse("linf:8/255"))
    (trial,) = AttacksSuite().threat_stages(config, 0)
    assert {stage.attack.threat for stage in trial.stages} == {Threat.parse("linf:8/255")}


def test_a_threat_written_with_the_attacks_is_the_threat_of_the_list():
    listed = ({"name": "apgd_ce", "threat": "l2:0.5"}, {"name": "square", "threat": "l2:0.5"})
    assert str(AttacksSuite().threat(EvaluationConfig(suite="attacks", attacks=listed))) == "l2:0.5"
    with pytest.raises(UserError, match=r"apgd_ce for l2:0.5, square for linf:8/255"):
        AttacksSuite().threat(EvaluationConfig(suite="attacks", attacks=(listed[0], "square")))


def test_further_threats_follow_the_attack_s_own():
    config = EvaluationConfig(suite="attacks", attacks=("patch_fool",), union=(Threat.parse("l2:1"),))
    assert [str(trial.threat) for trial in AttacksSuite().threat_stages(config, 0)] == ["linf:1", "l2:1"]


@pytest.mark.parametrize("suite, kind", [("sweep", SweepSuite), ("curve", CurveSuite)])
def test_radii_beyond_the_range_of_pixels_are_refused(suite, kind):
    with pytest.raises(UserError, match=r"2 times linf:1 is beyond the range of pixel values.*threat=linf:8/255"):
        kind().threat_stages(EvaluationConfig(suite=suite, attack="patch_fool"), 0)
    config = EvaluationConfig(suite=suite, attack="patch_fool", sweep=("0", "1/2", "1"))
    assert str(kind().threat_stages(config, 0)[-1].threat) == "linf:1"
