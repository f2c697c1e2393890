"""Published weights: those of timm, of which a network made on the spot stands for the download."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import ModelConfig, catalog, load_model
from hardtack.models.adaptation import HEADS
from hardtack.models.catalog import Published, make_body
from hardtack.models.facts import known, uninitialised


def publish(monkeypatch, **theirs):
    """timm's network under small options, in place of the download; returns that network, once it was asked for."""
    made = {}

    def fetch(name):
        torch.manual_seed(0)
        made["module"] = module = timm.create_model(name, pretrained=False, **theirs).eval()
        with torch.no_grad():  # zeros and ones would hide tensors that were mixed up
            for value in module.state_dict().values():
                if value.is_floating_point():
                    value.add_(0.02 * torch.rand_like(value))
        return Published(name=name, state=module.state_dict(), mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2))

    monkeypatch.setattr(catalog, "fetch_published", fetch)
    return made


# ---------------------------------------------------------------- all of them

PYRAMID = ({"depths": (1, 1, 1, 1)}, {"depths": (1, 1, 1, 1)})
SHORT = {
    "cait": ({"depth": 1}, {"depth": 1}),
    "convit": ({"depth": 2, "local_up_to_layer": 1}, {"depth": 2, "plain_depth": 1}),
    "deit": ({"depth": 1}, {"depth": 1}),
    "levit": ({"depth": (1, 1, 1)}, {"depths": (1, 1, 1)}),
    "pvtv2": PYRAMID,
    "swin": PYRAMID,
    "vit": ({"depth": 1}, {"depth": 1}),
    "xcit": ({"depth": 1}, {"depth": 1}),
}
"""How timm, and how we, say that a network of a family shall be short; the others come whole."""
LARGE = ("mixer_b16_224", "vgg16_bn_224", "wide_resnet50_2_224")
PUBLISHED = [name for name in models.names() if models.get(name).published]


def one_of_each():
    """The smallest name of every constructor and stem; the large ones, in which nothing else is new, only if asked."""
    groups = {}
    for name in PUBLISHED:
        groups.setdefault((models.get(name).make, name.endswith("_32")), []).append(name)
    smallest = [min(names, key=lambda name: known()[name].parameters) for names in groups.values()]
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in smallest]


def shapes(module):
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_network_has_the_shapes_of_ours(name):
    published = timm.models.get_pretrained_cfg(models.get(name).published)
    assert published.has_weights and published.num_classes == 1000
    with torch.device("meta"), uninitialised():
        whole = make_body(name, num_classes=1000, options={})
        assert shapes(whole.module) == shapes(timm.create_model(models.get(name).published))


@pytest.mark.parametrize("name", one_of_each())
def test_published_weights_make_the_published_network(name, monkeypatch):
    theirs, ours = SHORT.get(models.get(name).family, ({}, {}))
    made = publish(monkeypatch, **theirs)
    model = load_model(name, pretrained=True, **ours)
    assert model.num_classes == 1000 and model.architecture["mean"] == [0.4] * 3
    assert not model.fitted.resized and not model.fitted.fresh and not model.fitted.dropped
    turned = [note.split(" ")[0] for note in model.fitted.notes if note.split(" ")[0] not in ours]
    assert turned == (["the"] if name.endswith("_32") else []), "only the stem's strides may differ, and are said"
    if name.endswith("_32"):
        stem = [module for module in made["module"].patch_embed.modules() if isinstance(module, nn.Conv2d)]
        stem[0].stride = stem[1].stride = (1, 1)  # the thesis's surgery, by hand
    size = model.image_size or 64
    x = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(x), made["module"]((x - 0.4) / 0.2), atol=1e-5, rtol=1e-5)

    ten = load_model(name, pretrained=True, num_classes=10, **ours)
    assert ten.fitted.fresh and not ten.fitted.resized and not ten.fitted.dropped
    assert all(key.split(".")[1] in HEADS for key in ten.fitted.fresh)
    with torch.no_grad():
        assert ten(x).shape == (1, 10)


def test_a_file_of_theirs_is_as_good(monkeypatch, tmp_path):
    made = publish(monkeypatch, depth=1)
    model = load_model("deit_tiny_patch16_224", pretrained=True, depth=1)
    torch.save(made["module"].state_dict(), tmp_path / "theirs.pt")
    asked = {"num_classes": 1000, "mean": 0.4, "std": 0.2, "depth": 1}
    again = load_model("deit_tiny_patch16_224", weights=tmp_path / "theirs.pt", **asked)
    x = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


# ---------------------------------------------------------------- what is said of them


@pytest.mark.parametrize(
    "name, turned, note",
    [
        ("pvtv2_b0_224", {"patch_size": 2}, "the stem's strides changed, its weights did not: patches of 4 → 2 pixels"),
        ("pvtv2_b0_224", {"heads": [2, 4, 5, 8]}, "heads (1, 2, 5, 8) → (2, 4, 5, 8)"),
        ("deit_tiny_patch16_224", {"activation": "relu"}, "activation gelu → relu"),
        ("resnet18_224", {"activation": "gelu"}, "activation relu → gelu"),
        ("xcit_nano_12_patch8_224", {"tokens_norm": True}, "tokens_norm False → True"),
        ("levit_128s_224", {"activation": "relu"}, "activation as published → relu"),
    ],
)
def test_a_knob_that_changes_the_function_is_said(name, turned, note, monkeypatch):
    """Also one that was left at its default when the weights were published."""
    theirs, ours = SHORT.get(models.get(name).family, ({}, {}))
    publish(monkeypatch, **theirs)
    model = load_model(name, pretrained=True, drop_path=0.1, **ours, **turned)
    assert [said for said in model.fitted.notes if said.split(" ")[0] not in ours] == [note]


def test_published_weights_for_other_images_and_classes(monkeypatch):
    publish(monkeypatch, depth=1)
    asked = ModelConfig(name="deit_tiny_patch16_224", pretrained=True, options={"depth": 1, "patch_size": 4})
    model = load_model(asked, num_classes=10, image_size=32)
    said = "resized: pos_embed 14×14 → 8×8, patch_embed.proj.weight 16×16 → 4×4; new: head.weight, head.bias"
    assert said in model.fitted.summary()
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 10)
    with pytest.raises(UserError, match=r"published weights of timm:deit_tiny_patch16_224 .*cannot be adapted"):
        load_model("deit_tiny_patch16_224", pretrained=True, depth=2)
