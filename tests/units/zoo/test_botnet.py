"""BoTNet: sizes, attention with positions by its formula, blocks and their branches, knobs."""

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.botnet import AttentionBlock, BoTNet, PlaceAttention

PARAMETERS = {
    ("botnet50_cifar", 10): 18_809_674,
    ("botnet.arg", 10): 18_827_082,
    ("botnet50_224", 1000): 20_852_008,  # the paper prints 20.8 M
}


def tiny(**options):
    torch.manual_seed(0)
    return BoTNet(**{"image_size": 8, "depths": (1, 2), "width": 8, "heads": 2, **options})


def count(name, classes, **options):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options=options).module
    return sum(p.numel() for p in body.parameters())


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    assert count(name, classes) == PARAMETERS[name, classes]


def test_paper_3s_count_with_the_other_stem():
    assert count("botnet.arg", 10, large_stem=True) == 18_822_474


@pytest.mark.parametrize("plain", [False, True])
def test_attention_by_its_formula(plain):
    """Every pair of places by hand."""
    torch.manual_seed(0)
    heads, grid, d = 2, 3, 4
    attention = PlaceAttention(width=heads * d, heads=heads, grid=grid, plain=plain).eval()
    x = torch.randn(1, heads * d, grid, grid)
    tokens = [(y, z) for y in range(grid) for z in range(grid)]
    q, k, v = attention.qkv(x[0].flatten(1).T).view(-1, 3, heads, d).unbind(1)  # T×heads×d
    rows, columns = attention.rows, attention.columns
    want = torch.zeros(heads, len(tokens), d)
    for head in range(heads):
        scores = torch.zeros(len(tokens), len(tokens))
        for i, (y, z) in enumerate(tokens):
            for j, (there, beyond) in enumerate(tokens):
                if plain:
                    place = rows[head, y] + columns[head, z]
                    scores[i, j] = q[i, head] @ k[j, head] + place @ q[j, head]
                else:
                    distance = rows[there - y + grid - 1] + columns[beyond - z + grid - 1]
                    scores[i, j] = q[i, head] @ (k[j, head] + distance) / d**0.5
        want[head] = scores.softmax(-1) @ v[:, head]
    assert torch.allclose(attention(x)[0].view(heads, d, -1), want.transpose(1, 2), atol=1e-5)


def test_attention_does_not_convolve():
    """A change of one place reaches every other."""
    torch.manual_seed(0)
    attention = PlaceAttention(width=8, heads=2, grid=4).eval()
    x = torch.randn(1, 8, 4, 4)
    y = x.clone()
    y[..., 0, 0] += 1
    assert ((attention(x) - attention(y)).abs().amax(1) > 1e-6).all()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_recompose_from_their_branches(stride, plain):
    torch.manual_seed(0)
    block = AttentionBlock(16, 4, stride=stride, heads=2, grid=4, plain=plain, drop_path=0.5).eval()
    x = torch.randn(2, 16, 4, 4)
    (branch,) = block.branches()
    assert branch.kind == "attention" and torch.equal(branch(x), block(x))
    assert block(x).shape == (2, 16, 4 // stride, 4 // stride) and (branch.identity is None) == (stride == 1)


def test_knobs_reach_the_network():
    model = tiny(image_size=32, large_stem=True, heads=4, drop_path=0.2, dropout=0.5, activation="gelu")
    first, second = model.blocks[1].attn, model.blocks[2].attn
    assert (first.grid, second.grid, first.num_heads) == (8, 4, 4)
    assert model.stem[0].kernel_size == (7, 7) and model.dropout.p == 0.5 and model.blocks[2].drop_path.rate == 0.2
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert model.eval()(torch.rand(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize(
    "size, options, words",
    [
        (36, {}, "multiple of 8"),
        (32, {"heads": 5}, "5 heads"),
        (32, {"dropout": 1.5}, "dropout"),
        (32, {"depths": ()}, "at least"),
    ],
)
def test_impossible_knobs_are_refused(size, options, words):
    with pytest.raises(UserError, match=words):
        make_body("botnet50_cifar", num_classes=10, image_size=size, options=options)


def test_one_graph():
    model = tiny(depths=(1,), dropout=0.1).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and model.blocks[0].attn.rows.grad.abs().sum() > 0
