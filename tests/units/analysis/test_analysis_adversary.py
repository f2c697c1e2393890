"""Analyses under attack say so where the attack has no gradient to follow."""

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat
from tiny_runs import images, labels

EIGHT = Threat.parse("linf:8/255")

SETTINGS = {
    "landscape": {"threat": "linf:8/255", "points": 3, "dims": 1},
    "curvature": {"threat": "linf:8/255", "top": 1, "most": 8},
    "growth": {"threat": "linf:8/255"},
    "attention": {"threat": "linf:8/255", "disturb": "attack", "masks": 1},
}


def notes(name, *, rounding):
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, patch_size=4, depth=1, width=8, heads=2, seed=0)
    if rounding:
        model.register_forward_pre_hook(lambda module, args: (torch.round(args[0] * 255) / 255,))
    found = ht.analyze(model, (images(3), labels(3)), name, runtime=Runtime(device="cpu"), quiet=True, **SETTINGS[name])
    return " ".join(found.notes)


@pytest.mark.parametrize("name", SETTINGS)
def test_an_attack_without_a_gradient_is_noted(name):
    assert "the attack has no gradient to follow on 3 of the first 3 images" in notes(name, rounding=True)
    assert "no gradient" not in notes(name, rounding=False)


@pytest.mark.parametrize("name", ["landscape", "curvature", "growth", "perturbations"])
def test_an_attack_on_patches_has_its_own_threat(name):
    entry = analyses.get(name)
    assert str(entry.make(attack={"name": "patch_fool"}).threat) == "linf:1"
    assert str(entry.make(attack={"name": "patch_fool"}, threat=EIGHT).threat) == "linf:8/255"


def test_other_attacks_have_the_usual_one():
    assert str(analyses.get("growth").make(attack="fgsm").threat) == "linf:8/255"
    assert str(analyses.get("perturbations").make().threat) == "linf:4/255"
    for name in ("landscape", "curvature"):
        assert analyses.get(name).make().threat is None, "no attack"
        with pytest.raises(UserError, match="an attack needs its threat"):
            analyses.get(name).make(attack="fgsm")
        assert str(analyses.get(name).make(attack={"name": "pgd", "threat": "l2:1"}).threat) == "l2:1"
    with pytest.raises(UserError, match="give the threat only once"):
        analyses.get("growth").make(attack={"name": "pgd", "threat": "l2:1"}, threat=EIGHT)


def test_the_attention_under_patch_fool_is_not_that_of_a_small_ball():
    settings = analyses.get("attention").make(disturb="attack", attack={"name": "patch_fool", "steps": 1})
    assert str(settings._adversary().threat) == "linf:1"
    settings = analyses.get("attention").make(disturb="attack", attack="fgsm")
    assert str(settings._adversary().threat) == "linf:8/255"
