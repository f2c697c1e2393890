"""CvT: sizes, convolutional projection and attention by a literal loop, both forms, any image size, knobs."""

import pytest
import torch
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model, tap
from hardtack.models.catalog import make_body
from hardtack.models.zoo.cvt import ConvolutionalAttention, ConvolutionalTransformer, MapBlock, neighbourhood
from hardtack.models.zoo.layers import Mlp

PAPER3 = {"class_token": False, "shared_kv": True, "qkv_bias": False, "width_scale": False, "final_norm": False}
TINY = {"stem_kernel": 3, "strides": (2, 2), "widths": (8, 12), "depths": (1, 2), "heads": (1, 2), "mlp_ratio": 2.0}


def tiny(**options):
    torch.manual_seed(0)
    return stirred(ConvolutionalTransformer(**{**TINY, **options}))


def test_parameter_counts():
    small = {"cvt.arg": 19_547_466, "cvt_13_32": 19_608_650}  # paper 3 prints 19.54
    assert sizes("cvt", 10).items() >= small.items()
    assert sizes("cvt", 1000)["cvt_13_224"] == 19_997_480  # published as 20 M


def literal_projection(layer, images, stride):
    """Depthwise 3×3 with zeros around, then batch norm, one pixel at a time: C×H×W to T×C."""
    convolution, norm = layer
    _, height, width = images.shape
    rows = []
    for row in range(0, height, stride):
        for column in range(0, width, stride):
            total = torch.zeros(len(images))
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    if 0 <= row + down < height and 0 <= column + right < width:
                        tap_weight = convolution.weight[:, 0, down + 1, right + 1]
                        total = total + tap_weight * images[:, row + down, column + right]
            rows.append((total - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutional_projection_by_a_loop(stride):
    layer = stirred(neighbourhood(4, stride=stride))
    images = torch.randn(2, 4, 5, 6)
    for image, out in zip(images, layer(images), strict=True):
        assert torch.allclose(out.flatten(1).T, literal_projection(layer, image, stride), atol=1e-5)


@pytest.mark.parametrize("class_token, shared_kv", [(False, True), (True, False)])
def test_attention_written_out(class_token, shared_kv):
    torch.manual_seed(0)
    layer = ConvolutionalAttention(width=6, heads=2, shared_kv=shared_kv, qkv_bias=True, width_scale=class_token)
    layer = stirred(layer)
    grid, first = torch.randn(3, 3, 6), torch.randn(1, 6)
    images = grid.permute(2, 0, 1)

    def tokens(near, stride):
        projected = literal_projection(near, images, stride)
        return torch.cat([first, projected]) if class_token else projected

    q = layer.q(tokens(layer.near_q, 1))
    k = layer.k(tokens(layer.near_k, 2))
    v = layer.v(tokens(layer.near_k if shared_kv else layer.near_v, 2))
    assert len(q) == 9 + class_token and len(k) == 4 + class_token
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        scores = q[:, part] @ k[:, part].T / (6 if class_token else 3) ** 0.5
        heads.append(scores.exp() / scores.exp().sum(1, keepdim=True) @ v[:, part])
    literal = layer.proj(torch.cat(heads, dim=1))
    x = torch.cat([first, grid.view(9, 6)])[None] if class_token else grid[None]
    assert torch.allclose(layer(x), literal.view(x.shape), atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 4, 6, 8), (2, 17, 8)])
def test_blocks_recompose_from_their_branches(shape):
    torch.manual_seed(0)
    attention = ConvolutionalAttention(width=8, heads=2, shared_kv=False, qkv_bias=True, width_scale=True)
    block = stirred(MapBlock(attention, Mlp(width=8, hidden=16), width=8))
    assert_recomposes(block, torch.randn(shape), kinds=["attention", "mlp"])


def test_paper_3s_stem_has_its_sources_padding():
    stem, authors = load_model("cvt.arg").body.embeddings[0].proj, load_model("cvt_13_224").body.embeddings[0].proj
    assert stem.padding == (stem.kernel_size[0] // 2,) * 2 == (1, 1) and authors.padding == (2, 2)
    x = torch.rand(1, 3, 32, 32)
    literal = torch.zeros(1, 3, 34, 34)
    literal[:, :, 1:33, 1:33] = x
    expected = (literal[:, :, 4:7, 28:31] * stem.weight).sum((1, 2, 3)) + stem.bias  # the second row, the last column
    assert stem(x).shape[2:] == (8, 8) and torch.allclose(stem(x)[0, :, 1, 7], expected, atol=1e-5)


def test_any_size():
    model = tiny(**PAPER3)
    assert model(torch.rand(2, 3, 18, 31)).shape == (2, 10)
    assert tiny()(torch.rand(2, 3, 19, 19)).shape == (2, 10)
    with pytest.raises(UserError, match="square"):
        tiny()(torch.rand(2, 3, 16, 20))


def test_tokens_and_keys_of_the_model_at_32_pixels():
    model = load_model("cvt_13_32", depths=(1, 1, 1))
    with tap(model) as taps, torch.no_grad():
        model(torch.rand(1, 3, 32, 32))
    assert [tuple(maps.shape[1:]) for maps in taps.attention] == [(1, 256, 64), (3, 64, 16), (6, 17, 5)]


def test_knobs_reach_the_network():
    model = tiny(**PAPER3, activation="relu", drop_path=0.2)
    blocks = [block for stage in model.stages for block in stage]
    assert [block.drop_path.rate for block in blocks] == [0.0, 0.1, 0.2]
    assert all(isinstance(block.mlp.act, torch.nn.ReLU) and block.attn.near_v is None for block in blocks)
    assert model.num_prefix_tokens == 0 and isinstance(model.norm, torch.nn.Identity)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"widths": (64, 192)}, "widths has 2"),
        ({"heads": (1, 3, 7)}, "7 heads"),
        ({"depths": (1, 0, 1)}, "depths"),
        ({"strides": (0, 2, 2)}, "strides"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("cvt_13_32", num_classes=10, options=options)


def test_one_graph():
    assert_one_graph(tiny(strides=(2,), widths=(8,), depths=(1,), heads=(2,)), torch.rand(2, 3, 8, 8))
