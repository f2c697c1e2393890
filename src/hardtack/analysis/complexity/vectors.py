"""The input vectors of a linear class in several dimensions: pixels of resized images, or subsets of coordinates.

A view turns a batch of images or features into vectors of its dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.analysis.image_cache import Batch, ImageCache
from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.models.parts import head

Views = dict[int, Callable[[Tensor], Tensor]]  # by dimension


def resized(shape: tuple[int, ...], sides: tuple[int, ...]) -> Views:
    """Views that resize images to these heights (widths in proportion) by area averaging; by default all halvings."""
    channels, height, width = shape
    sides = sides or _halvings(height)
    if max(sides) > height:
        raise UserError(f"images of {height} pixels can only be made smaller, found {max(sides)}")
    sizes = [(side, max(1, round(side * width / height))) for side in sides]
    return {channels * math.prod(size): functools.partial(_averaged, size=size) for size in sizes}


def chosen(d: int, counts: tuple[int, ...], *, seed: int, device: torch.device) -> Views:
    """Views of the first coordinates in one random order; by default all halvings of the dimension."""
    counts = counts or _halvings(d)
    if max(counts) > d:
        raise UserError(f"there are {d} coordinates, found {max(counts)}")
    order = randomness.permutation(d, seed).to(device)
    return {count: functools.partial(_picked, where=order[:count]) for count in counts}


def features(model: nn.Module, images: ImageCache) -> ImageCache:
    """The inputs of the last layer instead of the images."""
    names = head(model)
    layers = [(place, module) for place, module in model.named_modules() if f"{place}.weight" in names]
    layers = [(place, module) for place, module in layers if isinstance(module, nn.Linear | nn.modules.conv._ConvNd)]
    if not layers:
        raise UserError(
            "the last layer of this model was not found, so its features are not known: leave out complexity.of"
        )
    place, layer = layers[-1]

    def read() -> Iterator[Batch]:
        inputs: list[Tensor] = []
        with layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach().flatten(1))):
            for x, y, index in images:
                inputs.clear()
                with torch.no_grad():
                    model(x)
                if sum(map(len, inputs)) != len(x):
                    raise UserError(
                        f"the last layer of this model, {place}, must be called exactly once for an image, but is not"
                    )
                yield torch.cat(inputs), y, index

    return ImageCache(read(), images.device, images.size)


def _averaged(x: Tensor, size: tuple[int, int]) -> Tensor:
    return F.adaptive_avg_pool2d(x, size).flatten(1)


def _picked(x: Tensor, where: Tensor) -> Tensor:
    return x.flatten(1)[:, where]


def _halvings(size: int) -> tuple[int, ...]:
    sizes = [size]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return tuple(reversed(sizes))
