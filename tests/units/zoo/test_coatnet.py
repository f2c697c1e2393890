"""CoAtNet: paper 3's sizes, relative positions by a literal loop, blocks and their branches."""

import pytest
import torch
from family_checks import assert_one_graph, assert_recomposes, on_meta, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model
from hardtack.models.zoo.coatnet import AttentionBlock, CoAtNet, ConvolutionBlock, RelativeAttention

PARAMETERS = {
    "coatnet.arg": 16_997_816,
    "coatnet_cctt.arg": 16_997_816,
    "coatnet_cctc.arg": 16_656_808,
    "coatnet_cttt.arg": 17_364_176,
    "coatnet_cttc.arg": 17_023_168,
    "coatnet_cccc.arg": 16_022_848,
    "coatnet_ccct.arg": 16_363_856,
    "coatnet_ctcc.arg": 16_389_208,
    "coatnet_ctct.arg": 16_730_216,
    "coatnet_0_32": 17_007_224,
    "coatnet_0_224": 24_275_510,
}
SMALL = {"widths": (8, 12, 16, 20), "depths": (1, 2, 2, 1), "stem_width": 8, "heads": 2, "head_width": 4}


def test_parameter_counts():
    assert sizes("coatnet", 10) == PARAMETERS


def test_relative_attention_is_the_formula():
    side, heads, width = 3, 2, 4
    attention = stirred(RelativeAttention(5, 6, side=side, heads=heads, head_width=width))
    x = torch.randn(2, side * side, 5)
    q, k, v = attention.qkv(x).split(heads * width, dim=-1)
    out = torch.zeros(2, side * side, heads * width)
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        for i in range(side * side):
            scores = torch.zeros(2, side * side)
            for j in range(side * side):
                down, right = i // side - j // side, i % side - j % side
                row = (down + side - 1) * (2 * side - 1) + right + side - 1
                scores[:, j] = (q[:, i, part] * k[:, j, part]).sum(-1) / width**0.5
                scores[:, j] += attention.relative_bias[row, head]
            out[:, i, part] = (scores.softmax(-1)[:, :, None] * v[:, :, part]).sum(1)
    assert torch.allclose(attention(x), attention.proj(out), atol=1e-5)


@pytest.mark.parametrize("stride, outputs", [(1, 8), (1, 12), (2, 12)])
def test_blocks_are_their_branches(stride, outputs):
    x, common = torch.randn(2, 8, 6, 6), {"stride": stride, "ratio": 2.0, "drop_path": 0.5, "activation": "gelu"}
    assert_recomposes(stirred(ConvolutionBlock(8, outputs, **common)), x, kinds=["convolution"])
    block = AttentionBlock(8, outputs, side=6 // stride, heads=2, head_width=4, **common)
    assert_recomposes(stirred(block), x, kinds=["attention", "mlp"])


def test_maps_shrink_as_the_strides_say():
    def maps(name):
        model, sizes = on_meta(name, **SMALL), []
        for block in model.blocks:
            block.register_forward_hook(lambda block, args, out: sizes.append(out.shape[-1]))
        model(torch.zeros(1, 3, 32, 32, device="meta"))
        return sizes

    assert maps("coatnet_0_32") == [32, 16, 16, 8, 8, 4]
    assert maps("coatnet.arg") == [8, 4, 4, 2, 2, 1]


def test_the_pattern_tells_the_blocks():
    letters = {ConvolutionBlock: "C", AttentionBlock: "T"}
    model = on_meta("coatnet_0_32", pattern="CTCT", depths=(1, 1, 1, 1))
    assert "".join(letters[type(block)] for block in model.blocks) == "CTCT"
    theirs = on_meta("coatnet_0_224", pattern="CTCT", depths=(1, 1, 1, 1), activation="relu")
    kinds = {"MbConvBlock": "C", "TransformerBlock2d": "T"}
    assert "".join(kinds[type(stage.blocks[0]).__name__] for stage in theirs.stages) == "CTCT"
    assert not any(type(module).__name__ == "GELU" for module in theirs.modules())


def test_maps_of_odd_size_are_rounded_up_in_branch_and_shortcut_alike():
    model = CoAtNet(image_size=30, pattern="CTCT", strides=(2, 2, 2, 2, 2), **SMALL).eval()
    assert model(torch.rand(2, 3, 30, 30)).shape == (2, 10)


def test_it_compiles_to_one_graph():
    model = CoAtNet(image_size=16, pattern="CCTT", **SMALL | {"depths": (1, 1, 1, 1)})
    assert_one_graph(model, torch.rand(2, 3, 16, 16))


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("coatnet_0_32", {"pattern": "TTTT"}, "pattern must be one of CCTT"),
        ("coatnet_0_32", {"depths": (2, 2)}, "depths has 2"),
        ("coatnet_0_32", {"strides": (1, 3, 1, 1, 1)}, "strides are 1 or 2"),
        ("coatnet_0_32", {"drop_path": 1.0}, "drop_path"),
        ("coatnet_0_224", {"pattern": "CCT"}, "pattern must be one of CCTT"),
        ("coatnet_0_224", {"image_size": 50}, "multiple of 32"),
    ],
)
def test_impossible_knobs_are_refused(name, options, words):
    with pytest.raises(UserError, match=words):
        load_model(name, **options)
