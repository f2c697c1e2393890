"""FAN-Hybrid: sizes, its two attentions and its class attention written out, and its knobs."""

import pytest
import torch
import torch.nn.functional as F

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import load_model, parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.fan import ChannelMixing, ChannelWeights, FullyAttentionalNetwork, MapNorm, TokenMixing
from hardtack.models.zoo.xcit import ClassAttentionBlock

PARAMETERS = {  # at 1000 classes; published: 7, 26, 50 and 77 M
    "fan_tiny_hybrid_224": 7_467_240,
    "fan_small_hybrid_224": 26_117_944,
    "fan_base_hybrid_224": 50_475_048,
    "fan_large_hybrid_224": 76_855_140,
    "fan_tiny_hybrid_32": 7_315_176,
    "fan_small_hybrid_32": 25_818_424,
    "fan_base_hybrid_32": 50_126_376,
    "fan_large_hybrid_32": 76_481_892,
}


def on_meta(name, num_classes=10):
    with torch.device("meta"), uninitialised():
        return make_body(name, num_classes=num_classes, options={}).module


def tiny(**options):
    torch.manual_seed(0)
    return FullyAttentionalNetwork(**{"width": 16, "depth": 1, "heads": 2, "stem_depths": (1, 1), **options})


def stirred(module):
    """In eval mode, with no scale, weight or statistic left where it started."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.is_floating_point():
                noise = torch.rand(value.shape, generator=generator).to(value.dtype)
                value.add_(noise if "running_var" in name else (noise - 0.5) * 0.5)
    return module.eval()


def softmax(scores):
    return scores.exp() / scores.exp().sum()


def test_parameter_counts():
    assert {name for name in models.names() if models.get(name).family == "fan"} == PARAMETERS.keys()
    assert {name: parameter_count(on_meta(name, 1000)) for name in PARAMETERS} == PARAMETERS
    assert round(parameter_count(on_meta("fan_small_hybrid_224")) / 1e6, 1) == 25.7  # as RSPC prints it for CIFAR-10


@pytest.mark.parametrize("name, image_size, grid", [("fan_tiny_hybrid_224", 224, 14), ("fan_tiny_hybrid_32", 32, 8)])
def test_token_grid(name, image_size, grid):
    with torch.device("meta"), uninitialised():
        tokens = on_meta(name).patch_embed(torch.empty(1, 3, image_size, image_size))
    assert tokens.shape == (1, grid, grid, 192)


def test_channel_weights_are_their_formula():
    q, k = torch.randn(2, 3, 5, 4, dtype=torch.float64), torch.randn(2, 3, 5, 4, dtype=torch.float64)
    temperature = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64).reshape(3, 1, 1)
    found = ChannelWeights()(q, k, temperature)
    assert found.shape == (2, 3, 4, 1)
    for image in range(2):
        for head in range(3):
            typical = sum(softmax(k[image, head, :, channel]) for channel in range(4)) / 4
            for channel in range(4):
                meeting = (softmax(q[image, head, :, channel]) * typical).sum()
                expected = temperature[head, 0, 0] / (1 + (-meeting).exp())
                assert torch.allclose(found[image, head, channel, 0], expected, atol=1e-12)


def test_channel_mixing_is_its_formula():
    """k = v = x; v goes through linear, +γ·(depthwise, GELU, norm, depthwise), linear, norm; and is weighted."""
    mixing = stirred(ChannelMixing(width=6, heads=2, hidden=8, activation="gelu")).double()
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    hidden = mixing.mlp_v.fc1(x)
    inner = mixing.mlp_v.dwconv
    maps = F.gelu(F.conv2d(hidden.permute(0, 3, 1, 2), inner.conv1.weight, inner.conv1.bias, padding=1, groups=8))
    maps = F.conv2d(inner.bn(maps), inner.conv2.weight, inner.conv2.bias, padding=1, groups=8)
    value = mixing.mlp_v.fc2(hidden + mixing.mlp_v.gamma * maps.permute(0, 2, 3, 1))
    value = (value - value.mean(-1, keepdim=True)) / (value.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    value = value * mixing.norm_v.weight + mixing.norm_v.bias
    q = mixing.q(x)
    for image in range(2):
        for channel in range(6):
            head = channel // 3
            typical = sum(softmax(x[image, :, :, 3 * head + other]) for other in range(3)) / 3
            meeting = (softmax(q[image, :, :, channel]) * typical).sum()
            value[image, :, :, channel] *= mixing.temperature[head, 0, 0] * meeting.sigmoid()
    assert torch.allclose(mixing(x), value, atol=1e-12)


def test_token_mixing_is_its_formula():
    mixing = stirred(TokenMixing(width=6, heads=2)).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    q, (k, v) = mixing.q(x)[0], mixing.kv(x)[0].chunk(2, dim=-1)
    mixed = torch.zeros(4, 6, dtype=torch.float64)
    for part in (slice(0, 3), slice(3, 6)):
        for i in range(4):
            weights = softmax(torch.stack([q[i, part] @ k[j, part] / 3**0.5 for j in range(4)]))
            mixed[i, part] = sum(weights[j] * v[j, part] for j in range(4))
    assert torch.allclose(mixing(x)[0], mixing.proj(mixed), atol=1e-12)


@pytest.mark.parametrize("tokens_norm", [False, True])
def test_class_attention_block_is_its_formula(tokens_norm):
    block = ClassAttentionBlock(width=4, heads=2, hidden=8, eta=1.0, tokens_norm=tokens_norm, activation="gelu")
    block = stirred(block).double()
    x = torch.randn(3, 4, dtype=torch.float64)  # the class token and two others
    normed, attention = block.norm1(x), block.attn
    q, k, v = attention.q(normed[0]), attention.k(normed), attention.v(normed)
    read = torch.zeros(4, dtype=torch.float64)
    for part in (slice(0, 2), slice(2, 4)):
        weights = softmax(torch.stack([q[part] @ k[j, part] / 2**0.5 for j in range(3)]))
        read[part] = sum(weights[j] * v[j, part] for j in range(3))
    said = [attention.proj(read), normed[1], normed[2]]
    stream = [x[token] + block.gamma1 * said[token] for token in range(3)]
    stream = [block.norm2(value) if tokens_norm or token == 0 else value for token, value in enumerate(stream)]
    expected = [stream[0] + block.gamma2 * block.mlp(stream[0]), 2 * stream[1], 2 * stream[2]]
    assert torch.allclose(block(x[None])[0], torch.stack(expected), atol=1e-12)


def test_map_norm_is_the_same_in_either_memory_format():
    norm, x = stirred(MapNorm(6)), torch.randn(2, 6, 3, 3)
    assert torch.allclose(norm(x), norm(x.to(memory_format=torch.channels_last)), atol=1e-6)
    assert torch.allclose(
        norm(x)[1, :, 2, 0], F.layer_norm(x[1, :, 2, 0], (6,), norm.weight, norm.bias, 1e-6), atol=1e-6
    )


def test_blocks_are_their_branches():
    model = stirred(tiny(drop_path=0.5))
    inputs = [(model.blocks[0], torch.randn(2, 3, 5, 16)), (model.cls_attn_blocks[0], torch.randn(2, 6, 16))]
    inputs += [(model.patch_embed.backbone.stages[0].blocks[0], torch.randn(2, 128, 5, 5))]
    for block, x in inputs:
        out = x
        for branch in block.branches():
            out = branch(out)
        assert torch.allclose(block(x), out, atol=1e-5) and not torch.allclose(out, x, atol=1e-2)


def test_knobs_reach_the_network():
    body = load_model("fan_tiny_hybrid_32", depth=2, patch_size=8, mlp_ratio=2, drop_path=0.2, eta=0.1).body
    assert body.patch_embed(torch.rand(1, 3, 32, 32)).shape == (1, 4, 4, 192)
    assert {block.drop_path.rate for block in body.blocks} == {0.2} and len(body.blocks) == 2
    assert body.blocks[0].mlp.mlp_v.fc1.out_features == 384 and (body.blocks[1].gamma2 == 0.1).all()
    plain, quiet = tiny().head.weight.std(), tiny(head_scale=0.001).head.weight.std()
    assert 0.0003 < quiet / plain < 0.003


def test_any_multiple_of_the_patch_is_an_image():
    model = tiny().eval()
    assert model(torch.rand(1, 3, 8, 12)).shape == (1, 10)
    with pytest.raises(UserError, match="30 cannot be cut into patches of 4"):
        model(torch.rand(1, 3, 30, 32))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 2}, "no multiple of"),
        ({"stem_patch": 0}, "stem_patch"),
        ({"stem_depths": (3,)}, "stem_depths has 1"),
        ({"stem_depths": (3, 0)}, "stem_depths must be at least 1"),
        ({"heads": 5}, "shared among 5 heads"),
        ({"depth": 0}, "at least 1"),
        ({"drop_path": 1.0}, "drop_path"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("fan_tiny_hybrid_32", **options)


def test_compiles_to_one_graph():
    model = tiny(drop_path=0.1, class_depth=1).train()
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    torch.compile(model, fullgraph=True, backend="eager")(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(parameter.grad is not None for parameter in model.parameters())
