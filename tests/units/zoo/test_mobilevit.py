"""MobileViT: sizes, timm's function with the same weights, patches, blocks and their branches, knobs."""

import pytest
import timm
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.mobilevit import InvertedResidual, MobileViT, PatchTransformer, join, split

PARAMETERS = {
    ("mobilevit_s_32", 10): 4_944_042,
    ("mobilevit.arg", 10): 5_003_120,
    ("mobilevit_s_224", 1000): 5_578_632,
}


def tiny(**options):
    torch.manual_seed(0)
    sizes = {"widths": (4, 8, 8, 8, 12, 12, 16), "token_widths": (8, 8, 8), "depths": (1, 1, 1), "heads": 2}
    return MobileViT(**{**sizes, **options})


def attending(model):
    return [layer for layer in model.blocks if isinstance(layer, PatchTransformer)]


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


def test_with_the_published_strides_it_is_timms():
    """Also where patches do not fit the map (the last is 3×3) or exceed it (1×1)."""
    torch.manual_seed(0)
    ours = MobileViT(strides=(2, 2, 2, 2, 2)).eval()
    theirs = timm.create_model("mobilevit_s", num_classes=10).eval()
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    for size in (32, 96):
        x = torch.rand(1, 3, size, size)
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_tokens_of_one_place_stand_together():
    x = torch.arange(2 * 3 * 4 * 6).view(2, 3, 4, 6)
    tokens = split(x, 2)
    assert tokens.shape == (2 * 4, 6, 3)
    # image 1, the lower right pixel of every patch, row by row
    want = [x[1, :, row, column] for row in (1, 3) for column in (1, 3, 5)]
    assert torch.equal(tokens[4 + 3], torch.stack(want))
    assert torch.equal(join(tokens, 2, 4), x)


@pytest.mark.parametrize("size", [1, 7, 20])
def test_any_image_size(size):
    assert tiny(strides=(2, 2, 2, 2, 2)).eval()(torch.rand(1, 3, size, size)).shape == (1, 10)


@pytest.mark.parametrize("strides, tokens", [((1, 2, 1, 2, 1), [64, 16, 16]), ((2, 2, 2, 2, 2), [4, 1, 1])])
def test_tokens_of_the_configurations(strides, tokens):
    """How many tokens attend to each other in a 32-pixel image."""
    model, seen = tiny(strides=strides).eval(), []
    for layer in attending(model):
        layer.blocks[0].register_forward_hook(lambda block, args, out: seen.append(out.shape[1]))
    model(torch.rand(1, 3, 32, 32))
    assert seen == tokens


@pytest.mark.parametrize("outputs, stride, adds", [(8, 1, True), (8, 2, False), (12, 1, False)])
def test_blocks_recompose_from_their_branches(outputs, stride, adds):
    torch.manual_seed(0)
    block = InvertedResidual(8, outputs, stride=stride, expansion=4, activation="silu").eval()
    x = torch.randn(2, 8, 6, 6)
    assert len(block.branches()) == adds
    for branch in block.branches():
        assert torch.equal(branch(x), block(x))


def test_knobs_reach_the_network():
    options = {"head_width": 3, "mlp_ratios": (1.0, 2.0, 3.0), "drop_path": 0.2, "activation": "gelu", "expansion": 2}
    model = tiny(plain=True, patch_size=4, **options)
    blocks = [layer.blocks[0] for layer in attending(model)]
    assert [block.mlp.fc1.out_features for block in blocks] == [8, 16, 24]
    assert [block.drop_path.rate for block in blocks] == [0.0, 0.1, 0.2]
    assert blocks[0].attn.qkv.out_features == 3 * 2 * 3 and blocks[0].attn.qkv.bias is None and model.head.bias is None
    assert not any(isinstance(module, nn.SiLU) for module in model.modules())
    assert attending(model)[0].patch_size == 4


@pytest.mark.parametrize(
    "options, words",
    [
        ({"strides": (2, 2)}, "strides must be 5"),
        ({"strides": (3, 1, 1, 1, 1)}, "1 or 2"),
        ({"heads": 7}, "7 heads"),
        ({"depths": (1, 0, 1)}, "depths must be 3 positive"),
        ({"patch_size": 0}, "patch_size"),
        ({"drop_path": 2.0}, "drop_path"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("mobilevit_s_32", num_classes=10, options=options)


def test_one_graph():
    """The layer that cuts and attends; the whole takes long to trace."""
    layer = tiny(drop_path=0.2).train().blocks[-1]
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.rand(2, 12, 3, 3, requires_grad=True)  # a map that no 2×2 patches fit
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
