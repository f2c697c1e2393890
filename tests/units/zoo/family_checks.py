"""What the tests of every family of architectures ask: sizes, branches, one graph."""

import torch

from hardtack.base.registry import models
from hardtack.models import parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised


def on_meta(name, *, num_classes=10, **options):
    with torch.device("meta"), uninitialised():
        return make_body(name, num_classes=num_classes, options=options).module


def sizes(family, num_classes):
    """Parameters of every registered name of a family."""
    names = [name for name in models.names() if models.get(name).family == family]
    return {name: parameter_count(on_meta(name, num_classes=num_classes)) for name in names}


def stirred(module, *, seed=0):
    """The module in eval mode, every weight and statistic moved off its start value, so that none can hide."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                noise = torch.rand(value.shape, generator=generator)
                value.add_(noise if "running_var" in name else (noise - 0.5) * 0.4)
    return module.eval()


def assert_recomposes(block, x, *, kinds):
    """The block is its branches, one after another; and none of them is idle."""
    branches = block.branches()
    assert [branch.kind for branch in branches] == kinds
    with torch.no_grad():
        out = x
        for branch in branches:
            assert branch.function(out).abs().max() > 1e-3
            out = branch(out)
        assert torch.allclose(out, block(x), atol=1e-5)


def assert_one_graph(model, x):
    """Forward and backward compile to one graph and give the eager gradient."""
    model.eval()
    (wanted,) = torch.autograd.grad(model(x.requires_grad_()).square().sum(), x)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    (found,) = torch.autograd.grad(compiled(x).square().sum(), x)
    assert torch.allclose(found, wanted, atol=1e-4 * wanted.abs().max().item())
    torch._dynamo.reset()
