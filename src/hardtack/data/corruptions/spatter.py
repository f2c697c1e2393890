"""Spatter: drops of water (severities 1–3) or splashes of mud (4, 5) on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.edges import ONE, distance_to, find_edges
from hardtack.data.corruptions.filters import gaussian_filter, pad
from hardtack.data.corruptions.parts import in_parts

# (mean, deviation and smoothing of the liquid, threshold, strength of water or smoothing of mud) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float, float, float, float], ...]] = {
    "cifar": (
        (0.62, 0.1, 0.7, 0.7, 0.5),
        (0.65, 0.1, 0.8, 0.7, 0.5),
        (0.65, 0.3, 1, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    ),
    "imagenet": (
        (0.65, 0.3, 4, 0.69, 0.6),
        (0.65, 0.3, 3, 0.68, 0.6),
        (0.65, 0.3, 2, 0.68, 0.5),
        (0.65, 0.3, 1, 0.65, 1.5),
        (0.67, 0.4, 1, 0.65, 1.5),
    ),
}
_WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
_MUD = (63 / 255, 42 / 255, 20 / 255)
_DEEPEST = 20  # pixels from the drop's edge
_EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # light from the upper left


@corruptions.register("spatter", stream=18, help="drops of water or mud on the lens")
def spatter(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Lay transparent drops, or opaque mud, over the image where smoothed noise is above a threshold.

    The published function, OpenCV's edges, distances, equalisation and filters reproduced in whole numbers. The noise
    is smoothed in float32, where the original has float64. Images without a single lit drop, which the original
    divides by zero for, stay as they are.
    """
    mean, deviation, sigma, threshold, last = _CONSTANTS[constants][severity - 1]

    def spray(x: Tensor, keys: Tensor) -> Tensor:
        liquid = gaussian_filter(mean + deviation * randomness.normal(keys, x.shape[-2:]), sigma)
        return add_water(x, liquid, threshold, last) if severity <= 3 else add_mud(x, liquid, threshold, last)

    # larger parts: rows are swept one after the other, whatever the number of images
    return in_parts(spray, x, keys, values_cpu=2**21)


def add_mud(x: Tensor, liquid: Tensor, threshold: float, sigma: float) -> Tensor:
    """`x` N×3×H×W under mud where `liquid` (N×H×W) is above the threshold, its edge smoothed."""
    cover = gaussian_filter((liquid > threshold).to(x.dtype), sigma)[:, None]
    cover = cover.masked_fill(cover < 0.8, 0)
    return x * (1 - cover) + cover * _colour(_MUD, x)


def add_water(x: Tensor, liquid: Tensor, threshold: float, strength: float) -> Tensor:
    """`x` N×3×H×W and the light of drops where `liquid` (N×H×W) is above the threshold."""
    # the original's conversion to 8 bits starts again from 0 above 255
    levels = (liquid.masked_fill(liquid < threshold, 0) * 255).to(torch.int32) & 255
    light = (levels * drop_light(levels)).to(x.dtype)
    brightest = light.amax(dim=(1, 2), keepdim=True)
    light = light * (strength / brightest.clamp(min=1))
    return x + light[:, None] * _colour(_WATER, x)


def drop_light(levels: Tensor) -> Tensor:
    """N×H×W int32 grey levels: how the light falls on drops that rise with the distance from their edges."""
    depth = distance_to(find_edges(levels, 50, 150), limit=_DEEPEST)
    depth = _equalise(_box_sum(depth) // (9 * ONE))
    padded = pad(pad(depth, 1, "reflect", -2), 1, "reflect", -1)
    height, width = depth.shape[-2:]
    relief = torch.zeros_like(depth)
    for row, weights in enumerate(_EMBOSS):
        for column, weight in enumerate(weights):
            if weight:
                relief.add_(padded[:, row : row + height, column : column + width], alpha=weight)
    return (_box_sum(relief.clamp_(0, 255)) + 4) // 9  # to the nearest


def _box_sum(x: Tensor) -> Tensor:
    for dim in (-2, -1):
        size, padded = x.shape[dim], pad(x, 1, "reflect", dim)
        x = padded.narrow(dim, 0, size) + padded.narrow(dim, 1, size) + padded.narrow(dim, 2, size)
    return x


def _equalise(depth: Tensor) -> Tensor:
    """Whole depths 0 … 20 to grey levels, by rank: OpenCV's histogram equalisation (the least depth becomes 0)."""
    pixels = depth[0].numel()
    below = torch.stack([(depth <= level).sum(dim=(1, 2)) for level in range(_DEEPEST + 1)], dim=1)
    least = depth.amin(dim=(1, 2))[:, None]
    lowest = below.gather(1, least.long())
    # float32 and to the even neighbour, as OpenCV; a number divided by a tensor would be rounded twice
    others = (pixels - lowest).clamp(min=1).float()
    scale = torch.full_like(others, 255) / others
    table = ((below - lowest).float() * scale).round().clamp(0, 255).to(torch.int32)
    flat = lowest == pixels  # a single depth keeps its number
    table = torch.where(flat, least, table)
    return table.gather(1, depth.flatten(1).long()).view_as(depth)


def _colour(colour: tuple[float, float, float], like: Tensor) -> Tensor:
    return torch.stack([like.new_full((1, 1), channel) for channel in colour])
