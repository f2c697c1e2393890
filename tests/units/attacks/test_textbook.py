"""The ascent loop beside PGD as a textbook writes it: one image, plain loops, float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.attacks import Ascent
from hardtack.base.randomness import make_keys
from hardtack.threats import Threat

STEPS, LENGTH = 4, 0.05


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 5, 32), nn.Softplus(), nn.Linear(32, 4)).double()


def textbook(net, image, label, start, eps, norm, momentum=0.0, target=None):
    """Every pixel by itself; boxes that do not bind, so that projecting to the ball is enough."""
    point, velocity = start.double(), torch.zeros_like(image).double()
    for _ in range(STEPS):
        point = point.detach().requires_grad_()
        logits = net(point[None])
        value = F.cross_entropy(logits, label[None]) if target is None else -F.cross_entropy(logits, target[None])
        (gradient,) = torch.autograd.grad(value, point)
        if momentum:
            velocity = momentum * velocity + gradient / gradient.abs().mean()
            gradient = velocity
        if norm == "linf":
            moved = point.detach() + LENGTH * gradient.sign()
            point = image + (moved - image).clamp(-eps, eps)
        else:
            moved = point.detach() + LENGTH * gradient / gradient.norm()
            point = image + (moved - image) * min(1.0, eps / (moved - image).norm().item())
    return point.detach()


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("start", ["clean", "random"])
@pytest.mark.parametrize("norm, eps", [("linf", 0.08), ("l2", 0.15)])
def test_every_iterate_is_the_textbooks(norm, eps, start, momentum, targeted):
    net = network()
    x = 0.4 + 0.2 * torch.rand(5, 3, 4, 5, generator=torch.Generator().manual_seed(0)).double()
    y, target = torch.arange(5) % 4, (torch.arange(5) + 1) % 4
    settings = {
        "steps": STEPS,
        "step": LENGTH,
        "start": start,
        "momentum": momentum,
        "keep": "last",
        "seed": 3,
    }
    attack = Ascent(threat=Threat(norm, eps), **settings)
    found = attack(net, x, y, target=target if targeted else None)
    begin = x if start == "clean" else attack.threat.random_point(x, make_keys(torch.arange(5), 3, 0))
    for i in range(5):
        goal = target[i] if targeted else None
        assert torch.allclose(found[i], textbook(net, x[i], y[i], begin[i], eps, norm, momentum, goal), atol=1e-6)
