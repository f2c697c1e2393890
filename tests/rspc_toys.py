"""Networks for RSPC so small that their features, and the gradients of both players, can be written down."""

import torch
import torch.nn.functional as F
from torch import nn

from hardtack.models import load_model, wrap
from hardtack.objectives import RSPCConfig
from tiny_runs import CLASSES, Linear

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


class Halved(nn.Module):
    """A block: x/2 + b·x, one number b for all."""

    def __init__(self, b):
        super().__init__()
        self.b = nn.Parameter(torch.tensor(b))

    def forward(self, x):
        return x / 2 + self.b * x

    def branches(self):
        return ()


class TwoBlocks(nn.Module):
    """Pixels through two blocks of one number each, then a linear layer: all of its features are known."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Halved(0.7), Halved(-1.1)
        self.head = Linear()

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def two_blocks():
    return wrap(TwoBlocks(), mean=MEAN, std=STD, image_size=8, num_classes=CLASSES).train()


def small_vit(**options):
    options = {"patch_size": 4, "depth": 2, "width": 16, "heads": 2, **options}
    return load_model("vit_digits", num_classes=CLASSES, image_size=8, seed=0, **options).train()


def build(model=None, **settings):
    return RSPCConfig(**{"patch_size": 2, "share": 0.25, **settings}).build(model or two_blocks())


def shown(objective, x, y, **prepared):
    """What the model was shown: the damaged images and the clean ones, and what the objective said."""
    seen, prepared = [], {**objective.prepare(x, y), **prepared}
    handle = objective.model.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    out = objective(x, y, **prepared)
    handle.remove()
    assert len(seen) == 1, "one call of the model, as DDP asks"
    return *seen[0].chunk(2), out


def features(model, x):
    """Of both blocks, by their definition."""
    x = model.normalise(x)
    first = (0.5 + model.body.first.b) * x
    return first, (0.5 + model.body.second.b) * first


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def alignment(model, x, damaged):
    return sum(((a - b) ** 2).mean() for a, b in zip(features(model, x), features(model, damaged), strict=True)) / 2
