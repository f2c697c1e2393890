"""Theorem 2 of paper 4 the right way round, in networks whose smallest fooling radius is known, and why it is none.

A block is x ↦ x + s·d dᵀ(x − x₀): it leaves the image's own feature x₀ where it is and stretches by 1 + s along d, so
that every such network gives x₀ the same logits. Classes are told apart along one direction only.
"""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.models import wrap

DEPTH = 3
X = torch.full((1, 3, 2, 2), 0.5)


class Stretch(nn.Module):
    def __init__(self, along, by):
        super().__init__()
        self.norm, self.attn = nn.Identity(), nn.Linear(12, 12, bias=False)
        self.attn.weight.data.copy_(by * torch.outer(along, along))

    def forward(self, x):
        return x + self.attn(self.norm(x) - 0.5)


def network(along, by):
    head = nn.Linear(12, 2)
    head.weight.data.zero_()
    head.weight.data[0, 0] = 1.0  # the classes differ along the first pixel alone: by 0.1 at the image
    head.bias.data.copy_(torch.tensor([-0.4, 0.0]))
    return wrap(nn.Sequential(nn.Flatten(), *(Stretch(torch.eye(12)[along], by) for _ in range(DEPTH)), head)).eval()


def largest(model):
    found = ht.analyze(
        model, (X, torch.zeros(1).long()), "jacobian", of=("residual",), quiet=True, runtime=Runtime(device="cpu")
    )
    return float(found.arrays["sigma_residual"].max())


def smallest_radius(model):
    """By bisection along the only direction that matters."""
    low, high = 0.0, 0.5
    for _ in range(40):
        middle = (low + high) / 2
        moved = X.clone()
        moved[0, 0, 0, 0] -= middle
        low, high = (low, middle) if model(moved).argmax() == 1 else (middle, high)
    return high


def test_smaller_singular_values_mean_a_larger_radius():
    smooth, rough = network(along=0, by=0.2), network(along=0, by=1.0)
    assert largest(smooth) == pytest.approx(0.2, rel=1e-3) and largest(rough) == pytest.approx(1.0, rel=1e-3)
    for model, by in ((smooth, 0.2), (rough, 1.0)):
        assert smallest_radius(model) == pytest.approx(0.1 / (1 + by) ** DEPTH, rel=1e-3)
    assert smallest_radius(smooth) > smallest_radius(rough)  # equation 10 prints ≤


def test_but_they_need_not():
    """Stretching what no class depends on raises σ_max in every layer, and harms nothing."""
    smooth, rough = network(along=0, by=0.2), network(along=5, by=4.0)
    assert largest(smooth) < largest(rough)
    assert smallest_radius(smooth) < smallest_radius(rough) == pytest.approx(0.1, rel=1e-3)
