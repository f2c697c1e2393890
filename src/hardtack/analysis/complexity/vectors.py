"""The vectors a linear class looks at, in several dimensions: pixels of smaller and smaller images, or coordinates."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack import randomness
from hardtack.errors import UserError
from hardtack.models.parts import head


def resized(x: Tensor, sides: tuple[int, ...]) -> list[Tensor]:
    """Images of these heights (and widths in proportion), by averaging areas, as rows; all halvings unless told."""
    height, width = x.shape[-2:]
    sides = sides or _halvings(height)
    if max(sides) > height:
        raise UserError(f"images of {height} pixels are only made smaller, found {max(sides)}")
    made = [F.adaptive_avg_pool2d(x, (side, max(1, round(side * width / height)))) for side in sides]
    return [one.flatten(1) for one in made]


def chosen(vectors: Tensor, counts: tuple[int, ...], *, seed: int) -> list[Tensor]:
    """As many coordinates, the same random ones first; all halvings of the dimension unless told."""
    d = vectors.shape[1]
    counts = counts or _halvings(d)
    if max(counts) > d:
        raise UserError(f"there are {d} coordinates, found {max(counts)}")
    order = randomness.permutation(d, seed).to(vectors.device)
    return [vectors[:, order[:count]] for count in counts]


def features(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """What enters the last layer, n×d."""
    names = head(model)
    layers = [(place, module) for place, module in model.named_modules() if f"{place}.weight" in names]
    layers = [(place, module) for place, module in layers if isinstance(module, nn.Linear | nn.modules.conv._ConvNd)]
    if not layers:
        raise UserError("the last layer of this model is not known, so it has no features; leave out complexity.of")
    seen: list[Tensor] = []
    handle = layers[-1][1].register_forward_pre_hook(lambda module, given: seen.append(given[0].detach().flatten(1)))
    try:
        with torch.no_grad():
            for part in x.split(batch_size):
                model(part)
    finally:
        handle.remove()
    found = torch.cat(seen)
    if len(found) != len(x):
        raise UserError(f"the last layer of this model, {layers[-1][0]}, is not called once for an image")
    return found


def _halvings(size: int) -> tuple[int, ...]:
    found = [size]
    while found[-1] > 1:
        found.append(found[-1] // 2)
    return tuple(reversed(found))
