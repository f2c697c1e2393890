"""LeViT: sizes, timm's function with the same weights, biases that are never stale."""

import copy

import pytest
import timm
import torch
from family_checks import assert_one_graph, on_meta, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.levit import levit

SMALL = {"widths": (32, 48, 64), "depths": (1, 1, 1), "heads": (2, 2, 2)}


def test_parameter_counts():
    # paper 3 prints 6.67 M, which no configuration we know has
    assert sizes("levit", 10) == {"levit.arg": 7_001_042, "levit_128s_32": 7_002_314, "levit_128s_224": 7_014_758}
    assert sizes("levit", 1000)["levit_128s_224"] == 7_777_058


def test_it_is_timms_levit():
    ours = stirred(levit(image_size=64, patch_size=16, distilled=True))
    theirs = timm.create_model("levit_128s", num_classes=10, img_size=64).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("patch_size, grids", [(4, [64, 16, 4]), (8, [16, 4, 1]), (16, [4, 1, 1])])
def test_tokens_of_the_stages(patch_size, grids):
    model, tokens = on_meta("levit_128s_32", patch_size=patch_size, **SMALL).eval(), []
    for stage in model.stages:
        stage.register_forward_hook(lambda stage, args, out: tokens.append(out.shape[1]))
    model(torch.zeros(1, 3, 32, 32, device="meta"))
    assert tokens == grids


def test_biases_are_those_of_the_weights_at_hand():
    """After a pass in eval mode: new weights count, gradients flow, and a copy has its own."""
    model, other = stirred(levit(**SMALL)), stirred(levit(**SMALL), seed=1)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        model(x)
    duplicate = copy.deepcopy(model)
    model.load_state_dict(other.state_dict())
    assert torch.equal(model(x), other(x))
    assert not torch.equal(duplicate(x), other(x))
    for _ in range(2):
        duplicate(x).sum().backward()
    assert duplicate.stages[0].blocks[0].attn.attention_biases.grad.abs().max() > 0


def test_knobs_reach_the_network():
    model = on_meta("levit_128s_32", activation="gelu", drop_path=0.1, **SMALL)
    assert "GELU" in type(model.stages[0].blocks[0].mlp.act).__name__
    assert model.stages[2].blocks[0].drop_path1.drop_prob == 0.1
    assert "swish" in type(on_meta("levit.arg").stages[0].blocks[0].mlp.act).__name__.lower()


def test_it_compiles_to_one_graph():
    model = levit(widths=(32,), depths=(1,), heads=(2,))
    assert_one_graph(model, torch.rand(2, 3, 32, 32))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 2}, "4, 8 or 16"),
        ({"widths": (30, 48, 64)}, "multiples of 16"),
        ({"image_size": 30}, "cannot be"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("levit_128s_32", **options)
