"""ViTAE: sizes, performer attention by a literal loop, its random features, parallel branches, any image size."""

import pytest
import torch
import torch.nn.functional as F
from family_checks import assert_one_graph, assert_recomposes, sizes, stirred

from hardtack.base.errors import UserError
from hardtack.models import load_model, load_weights, save_weights
from hardtack.models.catalog import make_body
from hardtack.models.zoo.vitae import NormalCell, Performer, Pyramid, ReductionCell, Vitae

TINY = {"cell_widths": (6, 8), "width": 12, "depth": 2, "heads": 2, "groups": 4}


def tiny(**options):
    torch.manual_seed(0)
    return stirred(Vitae(**{**TINY, **options}))


def test_parameter_counts():
    small = {"vitae.arg": 22_806_282, "vitae_small_32": 23_627_946}
    assert sizes("vitae", 10).items() >= small.items()
    large = {"vitae.arg": 23_187_432, "vitae_small_224": 24_009_096}  # paper 3 prints 23.18
    assert sizes("vitae", 1000).items() >= large.items()


def test_performer_by_a_loop():
    torch.manual_seed(0)
    layer = stirred(Performer(5, 6))
    x, v = torch.randn(4, 5), torch.randn(4, 6)
    q, k = layer.qk(x).split(6, dim=1)

    def similarity(a, b):
        terms = [torch.exp(w @ a - a @ a / 2) * torch.exp(w @ b - b @ b / 2) for w in layer.features]
        return sum(terms) / len(terms)

    rows = []
    for query in q:
        weights = torch.stack([similarity(query, key) for key in k])
        rows.append((weights[:, None] * v).sum(0) / (weights.sum() + 1e-8))
    assert torch.allclose(layer(x[None], v[None])[0], layer.proj(torch.stack(rows)), atol=1e-5)


def test_random_features_are_orthogonal_fixed_and_saved(tmp_path):
    knobs = {**TINY, "reductions": (1, 2, 2)}
    one, again, other = (load_model("vitae_small_32", seed=seed, **knobs) for seed in (1, 1, 2))
    features = one.body.cells[0].performer.features
    assert torch.allclose(features @ features.T, 3 * torch.eye(3), atol=1e-5)  # rows of length √m
    assert torch.equal(features, again.body.cells[0].performer.features)
    assert not torch.equal(features, other.body.cells[0].performer.features)
    assert not any("features" in name for name, _ in one.named_parameters())
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(one(x), again(x)) and torch.equal(one(x), one(x))
    save_weights(tmp_path / "weights.safetensors", one)
    load_weights(other, tmp_path / "weights.safetensors")
    assert torch.equal(other(x), one(x))


def test_halves_do_not_reach_the_exponentials():
    torch.manual_seed(0)
    layer = stirred(Performer(8, 8))
    x, v = torch.randn(1, 6, 8), torch.randn(1, 6, 8)
    kept = []
    layer.proj.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    with torch.autocast("cpu", torch.bfloat16):
        half = layer.qk(x)
        layer(x, v)
    q, k = (part.float() for part in half.chunk(2, dim=-1))
    mixed = layer.kernel(q) @ layer.kernel(k).mT
    assert torch.allclose(kept[0], mixed @ v / (mixed.sum(-1, keepdim=True) + 1e-8), atol=1e-5)


def test_performer_claims_no_attention_map():
    claims = [name for name, part in tiny().named_modules() if hasattr(part, "attention")]
    assert claims == ["blocks.0.attn", "blocks.1.attn"]


def test_pyramid_is_its_dilated_convolutions_side_by_side():
    torch.manual_seed(0)
    pyramid = stirred(Pyramid(3, 2, kernel=3, stride=2, dilations=(1, 2), activation="gelu"))
    x = torch.randn(1, 8, 8, 3)
    out = pyramid(x)
    assert out.shape == (1, 4, 4, 4)
    for index, reach in enumerate((1, 2)):
        convolution = pyramid.convolutions[index]
        around = F.pad(x, (0, 0, reach, reach, reach, reach))
        for row in range(4):
            for column in range(4):
                seen = around[0, 2 * row :, 2 * column :][: 2 * reach + 1 : reach, : 2 * reach + 1 : reach]
                value = torch.einsum("hwc,ochw->o", seen, convolution.weight) + convolution.bias
                assert torch.allclose(out[0, row, column, 2 * index : 2 * index + 2], F.gelu(value), atol=1e-5)


@pytest.mark.parametrize("stride, size", [(1, 6), (2, 8), (4, 16), (4, 13)])
def test_reduction_cell_recomposes(stride, size):
    torch.manual_seed(0)
    cell = stirred(ReductionCell(3, 8, kernel=7, stride=stride, dilations=(1, 2), activation="gelu"))
    x = torch.randn(2, size, size, 3)
    assert_recomposes(cell, x, kinds=["attention+convolution", "mlp"])
    assert cell(x).shape == (2, size // stride, size // stride, 8)


def test_normal_cell_convolves_the_stream_and_attends_to_its_norm():
    torch.manual_seed(0)
    cell = stirred(NormalCell(width=8, heads=2, hidden=16, groups=4, drop_path=0.0, activation="gelu"))
    x = torch.randn(2, 3, 4, 8)
    attended = cell.attn(F.layer_norm(x, (8,), cell.norm1.weight, cell.norm1.bias, 1e-6).view(2, 12, 8))
    convolved = cell.branch(x.permute(0, 3, 1, 2))
    stream = x + attended.view(2, 3, 4, 8) + convolved.permute(0, 2, 3, 1)
    assert torch.allclose(cell(x), stream + cell.mlp(cell.norm2(stream)), atol=1e-5)
    assert_recomposes(cell, x, kinds=["attention+convolution", "mlp"])


@pytest.mark.parametrize("height, width", [(16, 16), (33, 33), (34, 50)])
def test_any_size(height, width):
    assert tiny()(torch.rand(1, 3, height, width)).shape == (1, 10)


def test_knobs_reach_the_network():
    model = tiny(depth=3, drop_path=0.2, activation="relu", reductions=(2, 2, 1))
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.1, 0.2]
    assert not any(isinstance(module, torch.nn.GELU) for module in model.modules())
    seen = []
    model.blocks[0].register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    model(torch.rand(1, 3, 32, 32))
    assert seen == [(1, 8, 8, 12)]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"reductions": (4, 2)}, "reductions"),
        ({"reductions": (3, 2, 2)}, "reductions"),
        ({"cell_widths": (96,)}, "cell_widths"),
        ({"groups": 5}, "multiple of 5"),
        ({"heads": 5}, "5 heads"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("vitae_small_32", num_classes=10, options=options)


def test_an_image_too_small_for_its_reductions_is_refused():
    with pytest.raises(UserError, match="shrinks images by 512 here, found 32×32 pixels"):
        load_model("vitae_small_32", reductions=(8, 8, 8), depth=1)(torch.rand(1, 3, 32, 32))
    with pytest.raises(UserError, match="model 'vitae_small_32': ViTAE shrinks images by 512"):
        load_model("vitae_small_32", image_size=32, reductions=(8, 8, 8), depth=1)


def test_one_graph():
    torch.manual_seed(0)
    reduce = ReductionCell(3, 8, kernel=3, stride=2, dilations=(1,), activation="gelu")
    normal = NormalCell(width=8, heads=2, hidden=8, groups=4, drop_path=0.0, activation="gelu")
    assert_one_graph(torch.nn.Sequential(reduce, normal), torch.rand(2, 8, 8, 3))
