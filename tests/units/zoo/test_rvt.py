"""RVT: sizes, the scaling of its attention, and its knobs."""

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import load_model, parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.layers import Attention
from hardtack.models.zoo.rvt import ConvolutionalMlp, Pool, RobustTransformer, ScaledAttention

PARAMETERS = {  # at 1000 classes; published: Ti 8.6 M, Ti* 10.9 M, S 22.1 M, S* 23.3 M, B 86.2 M
    "rvt_tiny_224": 8_646_376,
    "rvt_tiny_plus_224": 10_951_336,
    "rvt_small_224": 22_148_392,
    "rvt_small_plus_224": 23_300_872,
    "rvt_base_224": 86_223_784,
    "rvt_base_plus_224": 88_528_744,
    "rvt_tiny_32": 8_642_536,
    "rvt_tiny_plus_32": 8_888_296,
    "rvt_small_32": 22_144_552,
    "rvt_small_plus_32": 22_267_432,
    "rvt_base_32": 86_219_944,
    "rvt_base_plus_32": 86_465_704,
}


def on_meta(name, num_classes=10, **options):
    with torch.device("meta"), uninitialised():
        return make_body(name, num_classes=num_classes, options=options).module


def tiny(**options):
    torch.manual_seed(0)
    return RobustTransformer(**{"widths": (16, 32), "depths": (2, 1), "heads": (2, 4), "image_size": 16, **options})


def stirred(module):
    """In eval mode, with no table, weight or statistic left where it started."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.is_floating_point():
                noise = torch.rand(value.shape, generator=generator).to(value.dtype)
                value.add_(noise if "running_var" in name else noise - 0.5)
    return module.eval()


def test_parameter_counts():
    assert {name for name in models.names() if models.get(name).family == "rvt"} == PARAMETERS.keys()
    assert {name: parameter_count(on_meta(name, 1000)) for name in PARAMETERS} == PARAMETERS
    everywhere = parameter_count(on_meta("rvt_base_plus_224", 1000, masked_blocks=12))
    assert round(everywhere / 1e6, 1) == 91.8  # the number printed for RVT-B*


@pytest.mark.parametrize("name, grids", [("rvt_tiny_plus_224", [14, 7]), ("rvt_tiny_32", [8, 4]), ("rvt_base_32", [8])])
def test_token_grids(name, grids):
    model = on_meta(name).eval()
    seen = []
    for stage in model.transformers:
        stage.register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape[1:3])))
    model(torch.empty(1, 3, model.image_size, model.image_size, device="meta"))
    assert seen == [(grid, grid) for grid in grids]


def test_plus_has_tables_in_the_first_blocks_only():
    for name, masked in (
        ("rvt_tiny_plus_32", 10),
        ("rvt_small_plus_32", 5),
        ("rvt_base_plus_32", 5),
        ("rvt_tiny_32", 0),
    ):
        blocks = [block for stage in on_meta(name).transformers for block in stage.blocks]
        assert [isinstance(block.attn, ScaledAttention) for block in blocks] == [index < masked for index in range(12)]
    second = tiny(masked_blocks=3).transformers[1].blocks[0].attn
    assert second.att_mask.shape == (4, 4, 4)  # pooled to 2×2 tokens


def test_scaled_attention_is_its_formula():
    attention = stirred(ScaledAttention(width=6, heads=2, tokens=4)).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    qkv = x @ attention.qkv.weight.T + attention.qkv.bias
    mixed = torch.zeros_like(x)
    for image in range(2):
        for head in range(2):
            q, k, v = (qkv[image, :, start + 3 * head : start + 3 * head + 3] for start in (0, 6, 12))
            for i in range(4):
                factor = 1 / (1 + (-attention.att_mask[head, i]).exp())
                scores = torch.stack([q[i] @ k[j] / 3**0.5 * factor[j] for j in range(4)])
                weights = scores.exp() / scores.exp().sum()
                mixed[image, i, 3 * head : 3 * head + 3] = sum(weights[j] * v[j] for j in range(4))
    assert torch.allclose(attention(x), mixed @ attention.proj.weight.T + attention.proj.bias, atol=1e-12)


def test_scaled_attention_under_an_open_mask_is_attention():
    scaled = stirred(ScaledAttention(width=6, heads=2, tokens=4))
    plain = Attention(width=6, heads=2)
    plain.load_state_dict({name: value for name, value in scaled.state_dict().items() if name != "att_mask"})
    x = torch.randn(2, 4, 6)
    assert not torch.allclose(scaled(x), plain(x), atol=1e-3)
    torch.nn.init.constant_(scaled.att_mask, 50.0)  # sigmoid 1
    assert torch.allclose(scaled(x), plain(x), atol=1e-5)


def test_convolutional_mlp_is_its_formula():
    mlp = stirred(ConvolutionalMlp(width=2, hidden=3, activation="relu")).double()
    x = torch.randn(1, 3, 4, 2, dtype=torch.float64)

    def normed(value, norm):
        return (value - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias

    inside = normed(x[0] @ mlp.fc1.weight[:, :, 0, 0].T + mlp.fc1.bias, mlp.bn1).clamp(min=0)
    around = mlp.dwconv.bias.expand(3, 4, 3).clone()
    for row in range(3):
        for column in range(4):
            for i in range(max(0, row - 1), min(3, row + 2)):
                for j in range(max(0, column - 1), min(4, column + 2)):
                    around[row, column] += mlp.dwconv.weight[:, 0, i - row + 1, j - column + 1] * inside[i, j]
    out = normed(around, mlp.bn2).clamp(min=0) @ mlp.fc2.weight[:, :, 0, 0].T + mlp.fc2.bias
    assert torch.allclose(mlp(x)[0], normed(out, mlp.bn3), atol=1e-12)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_pool_is_a_grouped_convolution(copies):
    pool = Pool(inputs=4, outputs=4 * copies).double()
    grouped = torch.nn.Conv2d(4, 4 * copies, 3, stride=2, padding=1, groups=4).double()
    grouped.load_state_dict(pool.conv.state_dict())
    x = torch.randn(2, 7, 6, 4, dtype=torch.float64)
    expected = grouped(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    assert pool(x).shape == (2, 4, 3, 4 * copies) and torch.allclose(pool(x), expected, atol=1e-12)


@pytest.mark.parametrize("mlp", ["convolution", "linear"])
def test_blocks_are_their_branches(mlp):
    model = stirred(tiny(mlp=mlp, masked_blocks=1, drop_path=0.5))
    for block in model.transformers[0].blocks:
        x = torch.randn(2, 4, 4, 16)
        attention, feed = block.branches()
        assert (attention.kind, feed.kind) == ("attention", "mlp")
        assert torch.allclose(block(x), feed(attention(x)), atol=1e-5)


def test_knobs_reach_the_network():
    options = {"depths": (2, 1), "mlp_ratio": 2, "drop_path": 0.3, "patch_size": 8, "masked_blocks": 1}
    body = load_model("rvt_tiny_32", **options).body
    rates = [block.drop_path.rate for stage in body.transformers for block in stage.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2])
    block = body.transformers[0].blocks[0]
    assert block.mlp.fc1.out_channels == 384 and block.attn.att_mask.shape == (6, 16, 16)
    assert body(torch.rand(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 5}, "cannot be cut"),
        ({"stem": "pooled", "patch_size": 2}, "no multiple of"),
        ({"heads": (5, 12)}, "shared among 5 heads"),
        ({"depths": (3,)}, "depths has 1"),
        ({"widths": (192, 288)}, "multiple of that before it"),
        ({"masked_blocks": 13}, "all 12 blocks"),
        ({"drop_path": -0.1}, "drop_path"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("rvt_tiny_32", **options)


def test_compiles_to_one_graph():
    model = tiny(masked_blocks=1, drop_path=0.1, depths=(1, 1)).train()
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    torch.compile(model, fullgraph=True, backend="eager")(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["rvt_tiny_plus_224", "rvt_small_plus_224", "rvt_base_32"])
def test_drop_path_ends_at_eleven_twelfths_as_in_the_official_code(name):
    blocks = [block for stage in on_meta(name, drop_path=0.1).transformers for block in stage.blocks]
    assert [block.drop_path.rate for block in blocks] == pytest.approx([0.1 * index / 12 for index in range(12)])


def test_drop_path_changes_neither_the_weights_nor_the_outputs_in_eval_mode():
    plain, dropping = tiny().eval(), tiny(drop_path=0.5).eval()
    assert plain.state_dict().keys() == dropping.state_dict().keys()
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(plain(x), dropping(x)) and not torch.equal(dropping.train()(x), plain.train()(x))
