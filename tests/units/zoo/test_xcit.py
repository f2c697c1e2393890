"""XCiT against timm's, against its formulas written out, and under its knobs."""

import math

import pytest
import timm
import torch
import torch.nn.functional as F

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import load_model, parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.xcit import XCA, ClassAttentionBlock, FourierPositions, LocalPatchInteraction, Xcit

PARAMETERS = {  # at 1000 classes; 3.05, 26.25, 46.40 and 103.79 M in the thesis
    "xcit_nano_12_patch4_32": 3_053_224,
    "xcit_small_12_patch4_32": 26_253_304,
    "xcit_medium_12_patch4_32": 46_401_160,
    "xcit_large_12_patch4_32": 103_792_648,
    "xcit_nano_12_patch16_224": 3_053_224,
    "xcit_small_12_patch16_224": 26_253_304,
    "xcit_medium_12_patch16_224": 46_401_160,
    "xcit_large_12_patch16_224": 103_792_648,
    "xcit_nano_12_patch8_224": 3_049_016,
    "xcit_small_12_patch8_224": 26_213_032,
}


def stirred(module, *, seed=0):
    """The module in eval mode, every weight and statistic moved off its start value, so that none can hide."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.is_floating_point():
                noise = torch.rand(value.shape, generator=generator).to(value.dtype)
                value.add_(noise if "running_var" in name else (noise - 0.5) * 0.4)
    return module.eval()


def tiny(**options):
    return Xcit(**{"width": 32, "depth": 2, "heads": 4, **options})


def on_meta(name, num_classes):
    with torch.device("meta"), uninitialised():
        return make_body(name, num_classes=num_classes, options={}).module


def test_parameter_counts():
    assert {name for name in models.names() if models.get(name).family == "xcit"} == PARAMETERS.keys()
    assert {name: parameter_count(on_meta(name, 1000)) for name in PARAMETERS} == PARAMETERS


@pytest.mark.parametrize("tokens_norm", [False, True])
@pytest.mark.parametrize(
    "stem, patch_size, image_size", [(16, 16, 64), (8, 8, 32), (16, 8, 32), (16, 4, 32), (16, 2, 8)]
)
def test_xcit_is_timms_xcit(stem, patch_size, image_size, tokens_norm):
    """Also after the thesis's surgery, here done on timm's network: the first strides of its stem become 1."""
    ours = stirred(tiny(stem=stem, patch_size=patch_size, tokens_norm=tokens_norm, eta=0.5))
    theirs = timm.models.xcit.Xcit(
        patch_size=stem, embed_dim=32, depth=2, num_heads=4, num_classes=10, tokens_norm=tokens_norm
    ).eval()
    theirs.load_state_dict(ours.state_dict())
    for index in range(int(math.log2(stem // patch_size))):
        theirs.patch_embed.proj[2 * index][0].stride = (1, 1)
    x = torch.rand(3, 3, image_size, image_size)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_xca_is_its_formula():
    attention = stirred(XCA(width=12, heads=3)).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    qkv = F.linear(x, attention.qkv.weight, attention.qkv.bias)
    mixed = torch.zeros_like(x)
    for image in range(2):
        for head in range(3):
            q, k, v = (qkv[image, :, start + 4 * head : start + 4 * head + 4] for start in (0, 12, 24))
            q, k = q / q.pow(2).sum(0).sqrt(), k / k.pow(2).sum(0).sqrt()
            for i in range(4):
                scores = torch.stack([(q[:, i] * k[:, j]).sum() for j in range(4)]) * attention.temperature[head, 0, 0]
                weights = scores.exp() / scores.exp().sum()
                for token in range(5):
                    mixed[image, token, 4 * head + i] = sum(weights[j] * v[token, j] for j in range(4))
    expected = mixed @ attention.proj.weight.T + attention.proj.bias
    assert torch.allclose(attention(x), expected, atol=1e-12)


def test_local_patch_interaction_is_its_formula():
    local = stirred(LocalPatchInteraction(width=2, activation="relu")).double()
    x = torch.randn(1, 3, 4, 2, dtype=torch.float64)

    def depthwise(image, convolution):
        out = torch.zeros_like(image)
        for row in range(3):
            for column in range(4):
                for channel in range(2):
                    total = convolution.bias[channel].clone()
                    for i in (-1, 0, 1):
                        for j in (-1, 0, 1):
                            if 0 <= row + i < 3 and 0 <= column + j < 4:
                                weight = convolution.weight[channel, 0, i + 1, j + 1]
                                total += weight * image[row + i, column + j, channel]
                    out[row, column, channel] = total
        return out

    norm = local.bn
    middle = depthwise(x[0], local.conv1).clamp(min=0)
    middle = (middle - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    assert torch.allclose(local(x)[0], depthwise(middle, local.conv2), atol=1e-12)


def test_fourier_positions_are_their_formula():
    positions = stirred(FourierPositions(width=3, hidden=4, temperature=100.0)).double()
    weight, bias = positions.token_projection.weight[:, :, 0, 0], positions.token_projection.bias
    found = positions(torch.zeros(1, 2, 5, 3, dtype=torch.float64))
    for row in range(2):
        for column in range(5):
            waves = []
            for place, length in ((row + 1, 2), (column + 1, 5)):
                turn = 2 * math.pi * place / length
                waves += [math.sin(turn), math.cos(turn), math.sin(turn / 10), math.cos(turn / 10)]
            expected = weight @ torch.tensor(waves, dtype=torch.float64) + bias
            assert torch.allclose(found[0, row, column], expected, atol=1e-5)


def test_onlookers_of_class_attention_change_as_the_authors_trained_it():
    block = ClassAttentionBlock(width=8, heads=2, hidden=16, eta=1.0, tokens_norm=False, activation="gelu").eval()
    x = torch.randn(2, 4, 8)
    assert torch.allclose(block(x)[:, 1:], 2 * (x + F.layer_norm(x, (8,), eps=1e-6))[:, 1:], atol=1e-5)


@pytest.mark.parametrize("tokens_norm", [False, True])
def test_blocks_are_their_branches(tokens_norm):
    model = stirred(tiny(tokens_norm=tokens_norm, drop_path=0.5))
    inputs = [(block, torch.randn(2, 3, 5, 32)) for block in model.blocks]
    inputs += [(block, torch.randn(2, 6, 32)) for block in model.cls_attn_blocks]
    for block, x in inputs:
        out = x
        for branch in block.branches():
            out = branch(out)
        assert torch.allclose(block(x), out, atol=1e-6)
    kinds = [branch.kind for block in (model.blocks[0], model.cls_attn_blocks[0]) for branch in block.branches()]
    assert kinds == ["attention", "convolution", "mlp", "attention", "mlp"]


def test_any_multiple_of_the_patch_is_an_image():
    model = tiny().eval()
    assert model(torch.rand(1, 3, 4, 12)).shape == (1, 10)
    with pytest.raises(UserError, match="30 cannot be cut into patches of 4"):
        model(torch.rand(1, 3, 32, 30))


def test_knobs_reach_the_network():
    body = load_model("xcit_nano_12_patch4_32", depth=3, class_depth=1, mlp_ratio=2, eta=0.1, drop_path=0.2).body
    assert len(body.blocks) == 3 and len(body.cls_attn_blocks) == 1
    assert body.blocks[0].mlp.fc1.out_features == 256
    assert {block.drop_path.rate for block in body.blocks} == {0.2}  # alike in all blocks, as published
    assert (body.cls_attn_blocks[0].gamma2 == 0.1).all() and not body.cls_attn_blocks[0].tokens_norm


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 3}, "must be one of 2, 4, 8, 16, found 3"),
        ({"patch_size": 16, "stem": 8}, "must be one of 2, 4, 8, found 16"),
        ({"stem": 4}, "stem must be 16"),
        ({"heads": 5}, "shared among 5 heads"),
        ({"width": 20, "heads": 4}, "multiple of 8"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"class_depth": 0}, "class_depth"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("xcit_nano_12_patch4_32", **options)


def test_compiles_to_one_graph():
    model = tiny(drop_path=0.1, depth=1, class_depth=1).train()
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    torch.compile(model, fullgraph=True, backend="eager")(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and model.blocks[0].attn.temperature.grad is not None
