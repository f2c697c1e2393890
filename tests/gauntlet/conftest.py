"""A small core for the tests of the gauntlet: random features with a head fitted in closed form, and its digits."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hardtack.base.registry import mechanisms
from hardtack.data import load_data
from hardtack.evaluation.gauntlet import Core, build_defence
from hardtack.threats import Threat


class RandomFeatures(nn.Module):
    """Digits at 8×8 → fixed random ReLU features → logits by ridge regression."""

    def __init__(self, x, y, *, width=400, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(64, width)
        with torch.no_grad():
            self.first.weight.copy_(torch.randn(width, 64, generator=generator) / 4)
            self.first.bias.copy_(torch.randn(width, generator=generator) / 4)
            features = self.features(x)
            targets = 10 * F.one_hot(y, 10).float()
            gram = features.T @ features + torch.eye(width)
            self.head = nn.Parameter(torch.linalg.solve(gram, features.T @ targets))

    def features(self, x):
        return self.first(F.avg_pool2d(x.mean(dim=1, keepdim=True), 4).flatten(1) - 0.3).relu()

    def forward(self, x):
        return self.features(x) @ self.head


@pytest.fixture(scope="session")
def core():
    """Twelve test digits that the core classifies correctly; at linf:0.2 it has no robust accuracy."""
    train, test = load_data("digits", "train"), load_data("digits", "test")
    train_x, train_y, _ = train.batch(range(len(train)))
    x, y, _ = test.batch(range(40))
    model = RandomFeatures(train_x, train_y).eval()
    right = (model(x).argmax(dim=1) == y).nonzero().flatten()[:12]
    return Core(
        name="random features", model=model, x=x[right], y=y[right], train_x=train_x[:400], train_y=train_y[:400],
        threat=Threat.parse("linf:0.2"), classes=10, robust=RandomFeatures(train_x, train_y, seed=1).eval(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def defences(core):
    """Every mechanism around the core, with the parameters of seed 0."""
    return {name: build_defence(name, core, seed=0) for name in mechanisms.names()}
