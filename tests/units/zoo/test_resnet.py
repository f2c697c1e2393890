"""Residual networks: sizes, timm's function with the same weights, blocks and their branches."""

import pytest
import timm
import torch
from timm.models.resnet import BasicBlock, Bottleneck
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.resnet import ResidualBlock, ResNet

PARAMETERS = {
    ("resnet8_cifar", 10): 78_042,
    ("resnet20_cifar", 10): 272_474,
    ("resnet18_cifar", 10): 11_173_962,
    ("resnet50_cifar", 10): 23_520_842,
    ("resnet.arg", 10): 23_520_842,
    ("resnet18_224", 1000): 11_689_512,
    ("resnet50_224", 1000): 25_557_032,
}


def tiny(**options):
    torch.manual_seed(0)
    model = ResNet(**{"depths": (1, 2), "width": 8, **options})
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # statistics that a wrong order of layers would show
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


@pytest.mark.parametrize("bottleneck", [False, True])
def test_it_is_timms_resnet_on_a_small_stem(bottleneck):
    """Taken in order, our tensors are timm's, and so is the function."""
    ours = tiny(depths=(1, 2, 1, 1), bottleneck=bottleneck).eval()
    block = Bottleneck if bottleneck else BasicBlock
    theirs = timm.models.ResNet(block, (1, 2, 1, 1), num_classes=10, channels=(8, 16, 32, 64))
    theirs.conv1, theirs.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
    theirs.maxpool = nn.Identity()
    wider = nn.Sequential(nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32)) if bottleneck else None
    theirs.layer1[0] = block(8, 8, downsample=wider)  # timm's stem is 64 wide, so its first block is too
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.rand(2, 3, 20, 20)
    assert torch.allclose(ours(x), theirs.eval()(x), atol=1e-5)


@pytest.mark.parametrize("expansion", [None, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_recompose_from_their_branches(expansion, stride):
    torch.manual_seed(0)
    block = ResidualBlock(16, 16, stride=stride, expansion=expansion, drop_path=0.5).eval()
    x = torch.randn(2, 16, 8, 8)
    (branch,) = block.branches()
    assert branch.kind == "convolution" and torch.equal(branch(x), block(x))
    assert (branch.identity is None) == (stride == 1 and expansion is None)


def test_dropping_the_branch_leaves_the_shortcut():
    torch.manual_seed(0)
    block = ResidualBlock(8, 8, stride=1, drop_path=0.5).train()
    x = torch.rand(64, 8, 4, 4)  # positive, so that the activation after the sum leaves the shortcut as it is
    dropped = (block(x) == x).flatten(1).all(1).sum().item()
    assert 16 <= dropped <= 48


def test_knobs_reach_the_network():
    model = tiny(activation="gelu", drop_path=0.3)
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.15, 0.3]
    with torch.device("meta"), uninitialised():
        body = make_body("resnet50_224", num_classes=10, options={"activation": "gelu"}).module
    assert not any(isinstance(module, nn.ReLU) for module in body.modules())


@pytest.mark.parametrize(
    "options, words",
    [
        ({"depths": (1, 0)}, "at least one block"),
        ({"width": 0}, "width"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"activation": "tanh"}, "activation"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("resnet8_cifar", num_classes=10, options=options)


def test_one_graph():
    model = tiny(drop_path=0.2).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
