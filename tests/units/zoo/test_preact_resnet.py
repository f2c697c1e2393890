"""Pre-activation residual networks: sizes, timm's block with the same weights, branches."""

from functools import partial

import pytest
import torch
from timm.layers import BatchNormAct2d, create_conv2d
from timm.models.resnetv2 import DownsampleConv, PreActBasic, PreActBottleneck
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.preact_resnet import PreActBlock, PreActResNet

PARAMETERS = {
    ("preact_resnet18_cifar", 10): 11_172_170,
    ("preact_resnet50_cifar", 10): 23_513_162,
    ("preactresnet.arg", 10): 23_509_066,
    ("preact_resnet50_224", 1000): 25_549_352,
}


def block_with_statistics(**options):
    torch.manual_seed(0)
    block = PreActBlock(16, **options)
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):  # so that a wrong order of layers shows
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return block.eval()


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_the_block_is_timms(bottleneck, stride):
    ours = block_with_statistics(width=24, stride=stride, bottleneck=bottleneck)
    kind = PreActBottleneck if bottleneck else partial(PreActBasic, bottle_ratio=1.0)
    theirs = kind(
        16, ours.outputs, stride=stride, norm_layer=BatchNormAct2d, conv_layer=create_conv2d, proj_layer=DownsampleConv
    ).eval()
    theirs.load_state_dict({key.replace("shortcut", "downsample.conv"): v for key, v in ours.state_dict().items()})
    x = torch.randn(2, 16, 8, 8)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 16, "stride": 1},
        {"width": 16, "stride": 2},
        {"width": 4, "stride": 1, "bottleneck": True},
        {"width": 8, "stride": 2, "bottleneck": True, "activation": "silu"},
    ],
)
def test_blocks_recompose_from_their_branches(options):
    block = block_with_statistics(**options)
    x = torch.randn(2, 16, 8, 8)
    (branch,) = block.branches()
    assert torch.equal(branch(x), block(x)) and (branch.identity is None) == (options["stride"] == 1)


def test_the_first_name_of_every_tensor():
    """Weights trained with earlier versions must fit."""
    names = set(PreActResNet(depths=(1, 1), width=4).state_dict())
    assert {"stem.weight", "blocks.1.norm1.running_mean", "blocks.1.conv2.weight", "blocks.1.shortcut.weight"} <= names
    assert {"norm.weight", "head.bias"} <= names


def test_knobs_reach_the_network():
    torch.manual_seed(0)
    model = PreActResNet(depths=(1, 2), width=8, activation="gelu", drop_path=0.4, final_norm=False).eval()
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.2, 0.4]
    x = torch.rand(2, 3, 12, 12)
    assert torch.allclose(model(x), model.head(model.blocks(model.stem(x)).mean((2, 3))))


@pytest.mark.parametrize("options, words", [({"depths": ()}, "at least one block"), ({"drop_path": -0.1}, "drop_path")])
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("preact_resnet18_cifar", num_classes=10, options=options)


def test_one_graph():
    model = PreActResNet(depths=(1, 1), width=8, bottleneck=True, drop_path=0.2).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
