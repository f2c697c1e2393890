"""Wide residual networks: sizes by the paper's own arithmetic, both forms of the block, knobs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.wide_resnet import PlainBlock, WideResNet

PARAMETERS = {
    ("wrn16_4_cifar", 10): 2_748_890,
    ("wrn28_10_cifar", 10): 36_479_194,
    ("wrn34_10_cifar", 10): 46_160_474,
    ("wideresnet.arg", 10): 55_856_330,
    ("wide_resnet50_2_224", 1000): 68_883_240,
}


def tiny(**options):
    torch.manual_seed(0)
    return WideResNet(depth=10, widening=1, **options)


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


def test_depth_counts_the_layers():
    """WRN-16: a stem, twelve 3×3 convolutions in the blocks, and three shortcuts."""
    model = WideResNet(depth=16, widening=2)
    kernels = [module.kernel_size for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert kernels.count((3, 3)) == 1 + 12 and kernels.count((1, 1)) == 3


def test_the_plain_block_by_its_formula():
    torch.manual_seed(0)
    block = PlainBlock(8, 16, stride=2, dropout=0.0, drop_path=0.0, activation="relu").eval()
    for norm in (block.norm1, block.norm2):
        nn.init.uniform_(norm.running_mean, -0.2, 0.2)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
    x = torch.randn(2, 8, 6, 6)

    def normalised(norm, y):
        shape = (1, -1, 1, 1)
        return (y - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()

    y = F.conv2d(normalised(block.norm1, x).clamp(min=0), block.conv1.weight, block.conv1.bias, padding=1)
    y = F.conv2d(normalised(block.norm2, y).clamp(min=0), block.conv2.weight, block.conv2.bias, padding=1)[
        :, :, ::2, ::2
    ]
    kept = F.conv2d(x[:, :, ::2, ::2], block.shortcut.weight, block.shortcut.bias)
    assert torch.allclose(block(x), y + kept, atol=1e-5)


@pytest.mark.parametrize("plain", [False, True])
def test_blocks_recompose_from_their_branches(plain):
    model = tiny(plain=plain, dropout=0.4).eval()
    x = model.stem(torch.rand(2, 3, 8, 8))
    for block in model.blocks:
        (branch,) = block.branches()
        out = branch(x)
        assert torch.equal(out, block(x))
        x = out
    assert [block.branches()[0].identity is None for block in model.blocks] == [True, False, False]


@pytest.mark.parametrize("plain", [False, True])
def test_knobs_reach_the_network(plain):
    model = tiny(plain=plain, dropout=0.5, drop_path=0.2, activation="gelu").train()
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.1, 0.2]
    block, x = model.blocks[0], torch.rand(2, 16, 8, 8)
    assert not torch.equal(block(x), block(x))  # dropout draws anew


@pytest.mark.parametrize(
    "options, words",
    [
        ({"depth": 27}, "6n \\+ 4"),
        ({"depth": 4}, "6n \\+ 4"),
        ({"dropout": 1.0}, "dropout"),
        ({"widening": 0}, "widening"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("wrn16_4_cifar", num_classes=10, options=options)


def test_one_graph():
    compiled = torch.compile(tiny(plain=True, dropout=0.1).train(), fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
