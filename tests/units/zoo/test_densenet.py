"""DenseNet: sizes, timm's function with the same weights, knobs."""

import pytest
import timm
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.densenet import DenseLayer, DenseNet

PARAMETERS = {
    ("densenet121_cifar", 10): 6_956_298,
    ("densenet.arg", 10): 1_121_860,
    ("densenet121_224", 1000): 7_978_856,
}


def tiny(**options):
    torch.manual_seed(0)
    return DenseNet(**{"depths": (2, 3), "growth": 4, **options})


@pytest.mark.parametrize("name, classes", PARAMETERS)
def test_parameter_counts(name, classes):
    with torch.device("meta"), uninitialised():
        body = make_body(name, num_classes=classes, options={}).module
    assert sum(p.numel() for p in body.parameters()) == PARAMETERS[name, classes]


def test_it_is_timms_densenet_on_a_small_stem():
    ours = tiny().eval()
    theirs = timm.models.DenseNet(growth_rate=4, block_config=(2, 3), num_classes=10)
    theirs.features.conv0 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    theirs.features.norm0, theirs.features.pool0 = nn.Identity(), nn.Identity()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.rand(2, 3, 16, 16)
    assert torch.allclose(ours(x), theirs.eval()(x), atol=1e-5)


def test_a_layer_appends_and_passes_its_input_on():
    torch.manual_seed(0)
    layer = DenseLayer(6, growth=4, bottleneck=2).eval()
    x = torch.randn(2, 6, 5, 5)
    out = layer(x)
    assert out.shape == (2, 10, 5, 5) and torch.equal(out[:, :6], x) and layer.branches() == ()
    assert out[:, 6:].abs().sum() > 0


def test_knobs_reach_the_network():
    model = tiny(width=10, bottleneck=3, compression=0.75, activation="gelu")
    assert model.stem.out_channels == 10 and model.blocks[0].conv1.out_channels == 12
    assert model.blocks[2].conv.out_channels == 13  # 0.75 · (10 + 2 · 4), downwards
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())


@pytest.mark.parametrize(
    "options, words",
    [
        ({"compression": 0.0}, "compression"),
        ({"growth": 0}, "growth"),
        ({"depths": (3, 0)}, "at least one layer"),
        ({"width": 0}, "width"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("densenet121_cifar", num_classes=10, options=options)


def test_one_graph():
    compiled = torch.compile(tiny(depths=(1, 1)).train(), fullgraph=True, backend="eager")
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    compiled(x).square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0
