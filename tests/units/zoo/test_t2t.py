"""T2T-ViT: sizes, soft split and the narrow transformer by literal loops, fixed positions, knobs."""

import math

import pytest
import torch
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model, tap
from hardtack.models.catalog import make_body
from hardtack.models.zoo.t2t import TokenBlock, TokensToTokenTransformer, sinusoids, soft_split

TINY = {"image_size": 8, "kernels": (3, 3), "strides": (2, 2), "token_width": 6, "width": 12, "depth": 1, "heads": 2}


def tiny(**options):
    torch.manual_seed(0)
    return stirred(TokensToTokenTransformer(**{**TINY, **options}))


def test_parameter_counts():
    assert sizes("t2t", 10)["t2t_vit_t_14_32"] == 21_060_992
    # published as 21.5 and 64.1 M, where the fixed positions, 197·384 and 197·512 numbers, are counted too
    large = {"t2t_vit_t_14_224": 21_465_422, "t2t_vit_t_24_224": 64_000_590}
    assert sizes("t2t", 1000).items() >= large.items()


@pytest.mark.parametrize("size, kernel, stride", [(8, 3, 2), (8, 7, 4), (6, 3, 1)])
def test_soft_split_by_a_loop(size, kernel, stride):
    image = torch.randn(2, size, size)
    tokens = soft_split(image[None], kernel=kernel, stride=stride)[0]
    border = math.ceil((kernel - stride) / 2)
    around = torch.zeros(2, size + 2 * border, size + 2 * border)
    around[:, border : border + size, border : border + size] = image
    side = size // stride
    assert tokens.shape == (side**2, 2 * kernel**2)
    for row in range(side):
        for column in range(side):
            patch = around[:, row * stride :, column * stride :][:, :kernel, :kernel]
            assert torch.equal(tokens[row * side + column], patch.flatten())


def test_narrow_transformer_written_out():
    torch.manual_seed(0)
    block = stirred(TokenBlock(10, 6))
    x = torch.randn(2, 5, 10)
    for tokens, out in zip(x, block(x), strict=True):
        normed = block.norm1(tokens)
        q, k = (normed @ block.attn.qk.weight.T).split(6, dim=1)
        v = normed @ block.value.weight.T
        scores = torch.stack([torch.stack([a @ b for b in k]) for a in q]) / 10**0.5
        mixed = scores.exp() / scores.exp().sum(1, keepdim=True) @ v
        stream = v + block.attn.proj(mixed)
        assert torch.allclose(out, stream + block.mlp(block.norm2(stream)), atol=1e-5)
    assert_recomposes(block, x, kinds=["attention", "mlp"])


@pytest.mark.parametrize("kernels, tokens", [((3, 3, 3), 64), ((4, 4, 4), 64), ((4, 3, 3), 81), ((3, 4, 3), 64)])
def test_even_kernels_make_as_many_tokens_as_they_make(kernels, tokens):
    options = {"strides": (1, 2, 2), "token_width": 4, "width": 8, "depth": 1, "heads": 2}
    model = TokensToTokenTransformer(kernels=kernels, **options)
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 10)
    assert model.pos_embed.shape[1] == model.tokens(torch.rand(1, 3, 32, 32)).shape[1] + 1 == tokens + 1


def test_positions_are_fixed_sinusoids_and_travel_with_the_weights():
    table = sinusoids(7, 8)
    for position in range(7):
        for channel in range(8):
            wave = math.cos if channel % 2 else math.sin
            expected = wave(position / 10000 ** (2 * (channel // 2) / 8))
            assert table[0, position, channel].item() == pytest.approx(expected, abs=1e-6)
    model = TokensToTokenTransformer(**TINY)
    assert torch.equal(model.state_dict()["pos_embed"], sinusoids(5, 12))
    assert "pos_embed" not in dict(model.named_parameters())


def test_tokens_of_the_model_at_32_pixels():
    model = load_model("t2t_vit_t_14_32", depth=1)
    with tap(model) as taps, torch.no_grad():
        model(torch.rand(1, 3, 32, 32))
    assert [tuple(maps.shape[1:]) for maps in taps.attention] == [(1, 1024, 1024), (1, 256, 256), (6, 65, 65)]
    assert [tuple(feature.shape[1:]) for feature in taps.features] == [(1024, 64), (256, 64), (65, 384)]


def test_knobs_reach_the_network():
    model = tiny(depth=3, drop_path=0.2, activation="relu", image_size=16)
    assert model.pos_embed.shape == (1, 17, 12) and model(torch.rand(1, 3, 16, 16)).shape == (1, 10)
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.1, 0.2]
    assert not any(isinstance(module, torch.nn.GELU) for module in model.modules())


@pytest.mark.parametrize(
    "options, words",
    [
        ({"image_size": 30}, "multiple of 4"),
        ({"options": {"kernels": (3, 3)}}, "kernels has 2"),
        ({"options": {"kernels": (3, 1, 3)}}, "leave pixels out"),
        ({"options": {"heads": 5}}, "5 heads"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("t2t_vit_t_14_32", num_classes=10, **{"options": {}, **options})


def test_one_graph():
    assert_one_graph(tiny(), torch.rand(2, 3, 8, 8))
