"""What a patch attack takes from the model is part of its number: how large, how many, chosen how."""

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.results import Run, comparable, leaderboard

X = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def measured(name="vit_digits", y=None, **settings):
    model = ht.load_model(name, num_classes=10, image_size=32, seed=0)
    with torch.no_grad():
        labels = model(X).argmax(1) if y is None else y(model(X).argmax(1))
    given = {"attack": {"name": "patch_fool", "steps": 2}, "quiet": True, **settings}
    return ht.evaluate(model, (X, labels), **given).results[-1]


def run(label, result, path):
    return Run(path=path / label, label=label, results=[result])


def test_patches_of_another_size_or_choice_stand_in_another_table(tmp_path):
    by_attention, by_saliency = measured(), measured("timm:xcit_nano_12_p8_224")
    smaller = measured(attack={"name": "patch_fool", "steps": 2, "patch_size": 4})
    written_out = measured(attack={"name": "patch_fool", "steps": 2, "patch_size": 8, "choose": "attention"})
    found = leaderboard([run(str(n), r, tmp_path) for n, r in enumerate((by_attention, by_saliency, smaller))])
    assert [len(table.rows) for table in found] == [1, 1, 1]
    assert comparable(by_attention) == comparable(written_out), "the same attack, however it was asked for"
    assert by_attention.extra["limits"] == "1 patch of 8×8, chosen by attention"
    assert by_saliency.extra["limits"] == "1 patch of 8×8, chosen by saliency"
    assert "patch_size=8 choose=saliency" in by_saliency.attack


def test_what_is_done_for_want_of_attention_is_a_flag():
    (flag,) = [flag for flag in measured("timm:xcit_nano_12_p8_224").flags if flag["code"] == "no_attention"]
    assert flag["level"] == "yellow" and "chosen by saliency and no attention is drawn" in flag["message"]
    assert not [flag for flag in measured().flags if flag["code"] == "no_attention"]


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
