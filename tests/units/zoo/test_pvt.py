"""PVT: sizes, reduced attention by a literal loop, grids of the stages, knobs."""

import pytest
import torch
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model, tap
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.layers import Attention, Mlp
from hardtack.models.zoo.pvt import PyramidTransformer, ReducedAttention
from hardtack.models.zoo.vit import Block

TINY = {
    "image_size": 16, "widths": (6, 8), "depths": (1, 1), "heads": (1, 2), "mlp_ratios": (2.0, 2.0),
    "reductions": (2, 1),
}  # fmt: skip


def tiny(**options):
    torch.manual_seed(0)
    return stirred(PyramidTransformer(**{**TINY, **options}))


def test_parameter_counts():
    small = {"pvt_tiny_32": 10_754_442, "pvt_small_32": 19_778_954}
    assert sizes("pvt", 10).items() >= small.items()
    large = {  # published as 13.2, 24.5, 44.2 and 61.4 M
        "pvt_tiny_224": 13_229_288,
        "pvt_small_224": 24_485_864,
        "pvt_medium_224": 44_208_104,
        "pvt_large_224": 61_369_320,
    }
    assert sizes("pvt", 1000).items() >= large.items()


def test_reduced_attention_written_out():
    torch.manual_seed(0)
    layer = stirred(ReducedAttention(width=6, heads=2, grid=4, reduction=2))
    tokens = torch.randn(16, 6)
    grid = tokens.view(4, 4, 6)
    coarse = []
    for row in (0, 2):
        for column in (0, 2):
            total = layer.reduce.bias
            for down in (0, 1):
                for right in (0, 1):
                    total = total + layer.reduce.weight[:, :, down, right] @ grid[row + down, column + right]
            coarse.append(layer.norm(total))
    q, (k, v) = layer.q(tokens), layer.kv(torch.stack(coarse)).split(6, dim=1)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        scores = q[:, part] @ k[:, part].T / 3**0.5
        heads.append(scores.exp() / scores.exp().sum(1, keepdim=True) @ v[:, part])
    assert torch.allclose(layer(tokens[None])[0], layer.proj(torch.cat(heads, dim=1)), atol=1e-5)


def test_blocks_recompose_from_their_branches():
    torch.manual_seed(0)
    block = stirred(Block(ReducedAttention(width=6, heads=2, grid=4, reduction=4), Mlp(width=6, hidden=8), width=6))
    assert_recomposes(block, torch.randn(2, 16, 6), kinds=["attention", "mlp"])


def test_tokens_and_keys_of_the_model_at_32_pixels():
    model = load_model("pvt_tiny_32", depths=(1, 1, 1, 1))
    with tap(model) as taps, torch.no_grad():
        model(torch.rand(1, 3, 32, 32))
    assert [tuple(maps.shape[1:]) for maps in taps.attention] == [(1, 256, 16), (2, 64, 16), (5, 16, 16), (8, 5, 5)]


@pytest.mark.parametrize("patch_size, tokens", [(1, 1024), (4, 64)])
def test_patches_of_other_sizes(patch_size, tokens):
    with torch.device("meta"), uninitialised():
        options = {"patch_size": patch_size, "reductions": (8, 4, 2, 1)}
        model = make_body("pvt_tiny_32", num_classes=10, options=options).module
    assert model.stages[0].pos_embed.shape == (1, tokens, 64)


def test_knobs_reach_the_network():
    model = tiny(drop_path=0.2, activation="relu", depths=(1, 2), image_size=32)
    blocks = [block for stage in model.stages for block in stage.blocks]
    assert [block.drop_path.rate for block in blocks] == [0.0, 0.1, 0.2]
    assert all(isinstance(block.mlp.act, torch.nn.ReLU) for block in blocks)
    assert [type(block.attn) for block in blocks] == [ReducedAttention, Attention, Attention]
    assert model.num_prefix_tokens == 1 and model(torch.rand(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"options": {"reductions": (4, 2, 1, 2)}}, "end in 1"),
        ({"options": {"reductions": (3, 2, 1, 1)}}, "reduced 3 times"),
        ({"options": {"patch_size": 8}}, "1×1 tokens of stage 3"),
        ({"options": {"patch_size": 5}}, "patches of 5"),
        ({"options": {"heads": (1, 2, 5)}}, "heads has 3"),
        ({"image_size": 36}, "9×9 tokens of stage 2"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("pvt_tiny_32", num_classes=10, **{"options": {}, **options})


def test_one_graph():
    assert_one_graph(tiny(), torch.rand(2, 3, 16, 16))
