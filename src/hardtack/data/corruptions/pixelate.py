"""Pixelate: shrink and enlarge with Pillow's box filter, bit for bit, on whole batches."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.parts import in_parts

_SCALE: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.95, 0.9, 0.85, 0.75, 0.65),
    "imagenet": (0.6, 0.5, 0.4, 0.3, 0.25),
}
_BITS = 22  # of a weight, after the binary point


@corruptions.register("pixelate", stream=14, help="shrunk and enlarged again")
def pixelate(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Shrink by a factor and enlarge again, both with the box filter.

    Equal to Pillow's resize to the last bit; nothing is random. Sides are scaled each by itself and cut off to a
    whole number of pixels, as the original does with its 32 and 224.
    """
    scale = _SCALE[constants][severity - 1]
    return in_parts(lambda part: shrink_and_enlarge(part, scale), x)


def shrink_and_enlarge(x: Tensor, scale: float) -> Tensor:
    """`x` N×C×H×W in steps of 1/255, in such steps again."""
    levels = (x * 255).round().to(torch.int32)
    small = [max(1, int(side * scale)) for side in x.shape[-2:]]
    for height, width in (small, x.shape[-2:]):
        # Pillow's order: rows first and rounded to 8 bits, then columns
        levels = _resize(_resize(levels, 3, width), 2, height)
    return levels.to(x.dtype) / 255


def _resize(levels: Tensor, dim: int, size: int) -> Tensor:
    if size == levels.shape[dim]:
        return levels
    (weight, source), *others = _taps(levels.shape[dim], size, levels.device)
    total = levels.index_select(dim, source)
    if not others:  # enlarged: one source each
        return total
    shape = [-1 if axis == dim else 1 for axis in range(4)]
    total = total * weight.view(shape)
    for weight, source in others:
        total += levels.index_select(dim, source) * weight.view(shape)
    return (total + (1 << (_BITS - 1))) >> _BITS


@lru_cache(maxsize=64)
def _taps(before: int, after: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """(weights, positions), each `after` int, per tap; a tap that an output does not have weighs 0."""
    rows = [box_weights(before, after, output) for output in range(after)]
    table = []
    for tap in range(max(len(weights) for _, weights in rows)):
        weights = [weights[tap] if tap < len(weights) else 0 for _, weights in rows]
        positions = [min(first + tap, before - 1) for first, _ in rows]
        table.append((torch.tensor(weights, dtype=torch.int32, device=device), torch.tensor(positions, device=device)))
    return table


def box_weights(before: int, after: int, output: int) -> tuple[int, list[int]]:
    """(first input pixel, fixed-point weights) of one output pixel of Pillow's box filter along one axis."""
    scale = before / after
    reach = max(scale, 1.0)
    centre = (output + 0.5) * scale
    first = max(0, int(centre - reach / 2 + 0.5))
    last = min(before, int(centre + reach / 2 + 0.5))
    inverse = 1 / reach  # multiplied with, as Pillow does: a pixel at the very edge depends on it
    inside = [-0.5 < (pixel - centre + 0.5) * inverse <= 0.5 for pixel in range(first, last)]
    whole = math.floor((1 << _BITS) / max(1, sum(inside)) + 0.5)
    return first, [whole if taken else 0 for taken in inside]
