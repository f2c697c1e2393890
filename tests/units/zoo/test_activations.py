"""The knob `activation` reaches every activation of every network; left alone, the published mixture stays."""

import inspect

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hardtack.base.registry import models
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised, usual

KINDS = {"gelu", "relu", "relu6", "silu", "mish", "elu", "leaky_relu", "hardswish", "hardtanh", "softplus", "tanh"}
"""As torch calls them, whether a module or a function asks for them; sigmoids and softmaxes are gates and weights."""


class Activations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.kinds = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.kinds |= {func._overloadpacket.__name__.rstrip("_")} & KINDS
        return func(*args, **(kwargs or {}))


def activations(name, **options):
    """The kinds that run in a forward pass of a network, which is made shallow."""
    entry, size = models.get(name), usual(name)[0]
    knobs = {key: value.default for key, value in inspect.signature(entry.make).parameters.items()} | entry.presets
    if isinstance(knobs.get("depths"), tuple):
        options["depths"] = tuple(1 for _ in knobs["depths"])
    if isinstance(knobs.get("depth"), int):
        options["depth"] = 10 if entry.family == "wide_resnet" else 3
    if "masked_blocks" in knobs:
        options["masked_blocks"] = 0
    with torch.device("meta"), uninitialised(), torch.no_grad(), Activations() as ran:
        make_body(name, num_classes=10, options=options).module.eval()(torch.zeros(1, 3, size, size))
    return ran.kinds


def one_of_each():
    """A name for every way in which a constructor is called: words and switches tell them apart, numbers do not."""
    found = {}
    for name in models.names():
        entry = models.get(name)
        switches = tuple((key, value) for key, value in entry.presets.items() if isinstance(value, bool | str))
        if "activation" in inspect.signature(entry.make).parameters:
            found.setdefault((entry.make, switches), name)
    return sorted(found.values())


def test_every_model_has_the_knob():
    without = [
        name for name in models.names() if "activation" not in inspect.signature(models.get(name).make).parameters
    ]
    assert not without


@pytest.mark.parametrize("name", one_of_each())
def test_the_knob_reaches_every_activation(name):
    for activation in ("gelu", "silu"):  # an activation that stays what it was differs from one of the two
        assert activations(name, activation=activation) == {activation}


@pytest.mark.parametrize(
    "name, kinds",
    [
        ("coatnet_0_224", {"gelu", "silu", "tanh"}),
        ("pvtv2.arg", {"gelu", "relu"}),
        ("pvtv2_b0_32", {"gelu"}),
        ("vitae_small_32", {"gelu", "silu"}),
        ("cct_7_3x1_32", {"gelu", "relu"}),
        ("levit_128s_32", {"hardswish"}),
        ("mobilevit_s_224", {"silu"}),
    ],
)
def test_left_alone_the_published_mixture_stays(name, kinds):
    assert activations(name) == kinds
