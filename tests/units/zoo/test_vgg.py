"""VGG: sizes, torchvision's function with the same weights, knobs."""

import pytest
import torch
from torch import nn
from torchvision.models.vgg import make_layers

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.vgg import VGG

PARAMETERS = {
    ("vgg16_bn_cifar", 10): 14_728_266,
    ("vgg.arg", 10): 14_728_266,
    ("vgg16_bn_224", 1000): 138_365_992,
}


def tiny(**options):
    torch.manual_seed(0)
    return VGG(**{"widths": (8, 12), "depths": (1, 2), **options})


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


def test_its_maps_are_torchvisions():
    ours = tiny().eval()
    theirs = make_layers([8, "M", 12, 12, "M"], batch_norm=True).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.blocks.state_dict().values(), strict=True)))
    x = torch.rand(2, 3, 16, 16)
    maps = theirs(x)
    assert maps.shape == (2, 12, 4, 4) and torch.allclose(ours(x), ours.head(maps.mean((2, 3))), atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 28])
def test_any_image_size(size):
    assert tiny(widths=(4,) * 5, depths=(1,) * 5).eval()(torch.rand(1, 3, size, size)).shape == (1, 10)


def test_blocks_add_nothing_and_knobs_reach_the_network():
    model = tiny(activation="silu")
    blocks = [block for block in model.blocks if hasattr(block, "branches")]
    assert len(blocks) == 3 and all(block.branches() == () for block in blocks)
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())


@pytest.mark.parametrize("options", [{"depths": (1, 2)}, {"depths": (1, 1, 1, 1, 0)}, {"widths": (0, 8, 8, 8, 8)}])
def test_impossible_knobs_are_refused(options):
    with pytest.raises(UserError, match="for every stage"):
        make_body("vgg16_bn_cifar", num_classes=10, options=options)


def test_one_graph():
    compiled = torch.compile(tiny().train(), fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
