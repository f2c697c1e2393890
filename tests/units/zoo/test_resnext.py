"""ResNeXt: sizes, timm's bottleneck with the same weights, knobs."""

import pytest
import torch
from timm.models.resnet import Bottleneck
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.resnext import ResNeXt

PARAMETERS = {
    ("resnext29_2x64d_cifar", 10): 9_130_314,
    ("resnext.arg", 10): 9_128_778,
    ("resnext50_32x4d_224", 1000): 25_028_904,
}


def tiny(**options):
    torch.manual_seed(0)
    return ResNeXt(**{"depths": (1, 1), "cardinality": 4, "width": 4, **options})


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


def test_the_block_is_timms():
    """timm counts from a quarter of the output: 16, at 32 channels for every 64, is our 4 groups of 8 channels."""
    ours = tiny().blocks[1].eval()
    shortcut = nn.Sequential(nn.Conv2d(32, 64, 1, stride=2, bias=False), nn.BatchNorm2d(64))
    theirs = Bottleneck(32, 16, stride=2, downsample=shortcut, cardinality=4, base_width=32).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.rand(2, 32, 8, 8)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_blocks_recompose_from_their_branches():
    model = tiny().eval()
    x = model.stem(torch.rand(2, 3, 8, 8))
    for block in model.blocks:
        (branch,) = block.branches()
        out = branch(x)
        assert torch.equal(out, block(x))
        x = out


def test_knobs_reach_the_network():
    model = tiny(cardinality=8, width=2, drop_path=0.2, stem_kernel=1, activation="silu")
    assert [module.groups for module in model.modules() if isinstance(module, nn.Conv2d) and module.groups > 1] == [
        8,
        8,
    ]
    assert model.stem[0].kernel_size == (1, 1) and model.blocks[1].drop_path.rate == 0.2
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())


@pytest.mark.parametrize(
    "options, words",
    [({"stem_kernel": 2}, "odd"), ({"cardinality": 0}, "cardinality"), ({"depths": (0,)}, "at least one block")],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("resnext29_2x64d_cifar", num_classes=10, options=options)


def test_one_graph():
    compiled = torch.compile(tiny(drop_path=0.2).train(), fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
