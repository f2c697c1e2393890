"""Analyses under attack say so where the attack has no gradient to follow."""

import pytest
import torch

import hardtack as ht
from hardtack.base.runtime import Runtime
from tiny_runs import images, labels

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
