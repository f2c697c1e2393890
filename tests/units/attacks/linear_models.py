"""Linear models, and the strongest perturbation each ball ∩ box allows against them, in closed form.

On two classes every loss of the label is a rising function of g·δ with g = w_other − w_label, so the best
attack maximises a linear function: a fractional knapsack whose items are pixels.
"""

import torch
from torch import nn

SHAPE = (3, 4, 5)
PIXELS = 60
WIDEST = {"linf": 1.0, "l2": PIXELS**0.5, "l1": float(PIXELS)}


class Linear(nn.Module):
    """Logits W·x + b in which no image has an easy time: weights of mixed size, some of them zero."""

    def __init__(self, classes=2, seed=0, scale=0.3):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(classes, PIXELS, generator=generator) * scale
        self.head = nn.Linear(PIXELS, classes)
        self.head.weight.data = weight * (torch.rand(classes, PIXELS, generator=generator) > 0.1)
        self.head.bias.data = torch.randn(classes, generator=generator) * 0.1

    def forward(self, x):
        return self.head(x.flatten(1))

    def slope(self, y, other=None):
        """d (logit of `other` − logit of y) / dx, N×C×H×W; `other` is 1 − y on two classes."""
        other = 1 - y if other is None else other
        return (self.head.weight[other] - self.head.weight[y]).detach().reshape(-1, *SHAPE)


def images(kind="active box", count=16, seed=1):
    """`grey` images meet no face of the box; `active box` ones do; `corners` sit in its corners."""
    x = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return {"grey": 0.45 + 0.1 * x, "active box": x, "corners": x.round()}[kind]


def labels(count=16, classes=2):
    return torch.arange(count) % classes


def best_gain(slope, x, eps, norm):
    """max ⟨slope, δ⟩ over ‖δ‖ ≤ eps and x + δ in the box, in float64, one value per image; eps may differ by image."""
    slope, x = slope.double().flatten(1), x.double().flatten(1)
    eps = torch.as_tensor(eps, dtype=torch.float64).reshape(-1, 1)
    worth, room = slope.abs(), torch.where(slope > 0, 1 - x, x)
    if norm == "linf":
        return (worth * torch.minimum(room, eps)).sum(dim=1)
    if norm == "l1":  # spend the budget on the most valuable pixels first, each up to the face of the box
        order = worth.argsort(dim=1, descending=True)
        room, worth = room.gather(1, order), worth.gather(1, order)
        before = room.cumsum(dim=1) - room
        return (worth * torch.minimum(room, (eps - before).clamp_min(0))).sum(dim=1)
    low, high = torch.zeros(len(x), 1, dtype=torch.float64), torch.full((len(x), 1), 1e6, dtype=torch.float64)
    for _ in range(200):  # l2: min(s·|g|, room) with the s that spends the budget
        middle = (low + high) / 2
        over = torch.minimum(middle * worth, room).norm(dim=1, keepdim=True) > eps
        before, low, high = (low, high), torch.where(over, low, middle), torch.where(over, middle, high)
        if torch.equal(low, before[0]) and torch.equal(high, before[1]):
            break  # nothing lies between them
    return (worth * torch.minimum(low * worth, room)).sum(dim=1)


def gain(slope, x, x_adv):
    """⟨slope, x_adv − x⟩ per image, in float64."""
    return (slope.double() * (x_adv.double() - x.double())).flatten(1).sum(dim=1)


def classified(model, x):
    """Labels that the model gets right, and by how much it does."""
    with torch.no_grad():
        logits = model(x).double()
    top = logits.topk(2, dim=1).values
    return logits.argmax(1), top[:, 0] - top[:, 1]


def balanced(model, x):
    """All classes about equally likely: boundaries so near that not even one pixel alone would leave the box."""
    with torch.no_grad():
        model.head.bias -= model(x).mean(0)
    return model, x


def exact_distance(model, x, y, norm):
    """The smallest eps whose ball ∩ box holds a point on the boundary of two classes, by bisection in float64."""
    slope, (_, margin) = model.slope(y), classified(model, x)
    low, high = torch.zeros(len(x)).double(), torch.full((len(x),), WIDEST[norm]).double()
    for _ in range(40):
        middle = (low + high) / 2
        crossed = best_gain(slope, x, middle, norm) >= margin
        low, high = torch.where(crossed, low, middle), torch.where(crossed, middle, high)
    return high
