"""Snow whose wind turns, drops that run down, and light that grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.catalogue import cut_off
from hardtack.data.corruptions.filters import gaussian_filter
from hardtack.data.corruptions.motion import blur_along
from hardtack.data.corruptions.parts import in_parts
from hardtack.data.corruptions.snow import flakes, pale
from hardtack.data.corruptions.spatter import add_water
from hardtack.data.corruptions.tone import brighten


class _Snow(NamedTuple):
    zoom: float
    radius: float
    sigma: float


class _Spatter(NamedTuple):
    mean: float
    deviation: float
    smoothing: float
    threshold: float
    runs: tuple[float, ...]  # what a pixel takes over from the one below it, from itself, from those above it …
    below: int  # … how many of these weights are for pixels below


_SNOW: dict[Constants, _Snow] = {"cifar": _Snow(2, 10, 2), "imagenet": _Snow(3, 14, 4)}
_SNOW_NOISE, _SNOW_THRESHOLD, _SNOW_SHARE = (0.05, 0.3), 0.5, 0.85
_SPATTER: dict[Constants, _Spatter] = {
    "cifar": _Spatter(0.6, 0.265, 1.75, 0.7, (0.2, 0.8), 0),
    "imagenet": _Spatter(0.65, 0.27, 3.7, 0.69, (0.05, 0.1, 0.15, 0.7), 1),
}
_WATER_STRENGTH = 0.6
_BRIGHTER_PERCENT: dict[Constants, float] = {"cifar": 1.5, "imagenet": 2}


def snow(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """One layer of flakes, drawn out by a wind that turns by 4 degrees a frame, over a paler image.

    The published steps, with motion blur as ImageMagick's and 8 bits before and after it; the layer is random, and all
    frames share it. No frame is the image itself.
    """
    how = _SNOW[constants]
    mean, deviation = _SNOW_NOISE

    def fall(x: Tensor, keys: Tensor) -> Tensor:
        noise = mean + deviation * randomness.normal(keys, (1, *x.shape[-2:]))
        return flakes(noise, how.zoom, _SNOW_THRESHOLD)

    layer = in_parts(fall, x, keys)
    ground = pale(x, _SNOW_SHARE)
    for number in range(frames):
        angle = x.new_full((len(x),), number * 4 - 150, dtype=torch.float64)
        driven = blur_along(layer, angle, how.radius, how.sigma)
        yield cut_off(ground + (driven + driven.flip(2, 3)))


def spatter(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """Drops of water that run down the image, frame by frame.

    The published steps, OpenCV's edges, distances and filters as in the corruption; the drops are random, and smoothed
    in float32 where the original has float64. Images without a single lit drop, which the original divides by zero for,
    stay as they are.
    """
    how = _SPATTER[constants]

    def spray(x: Tensor, keys: Tensor) -> Tensor:
        return gaussian_filter(how.mean + how.deviation * randomness.normal(keys, x.shape[-2:]), how.smoothing)

    liquid = in_parts(spray, x, keys)
    liquid = liquid.masked_fill(liquid < how.threshold, 0)
    for _ in range(frames):
        # larger parts: rows are swept one after the other, whatever the number of images
        yield cut_off(in_parts(lambda x, liquid: add_water(x, liquid, 0, _WATER_STRENGTH), x, liquid, values_cpu=2**21))
        liquid = _run_down(liquid, how.runs, how.below)


def _run_down(liquid: Tensor, weights: tuple[float, ...], below: int) -> Tensor:
    """N×H×W: every pixel the weighted sum of its column's pixels, from `below` under it upwards; nothing beyond."""
    height, above = liquid.shape[1], len(weights) - 1 - below
    padded = F.pad(liquid, (0, 0, above, below))
    return sum(
        (weight * padded.narrow(1, len(weights) - 1 - place, height) for place, weight in enumerate(weights)),
        start=torch.zeros_like(liquid),
    )


def brightness(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """The value of HSV from −22.5 % to +22.5 % (ImageNet-P: ±30 %), in even steps; the middle frame is the image.

    The published function to the last bit; nothing is random.
    """
    for number in range(frames):
        yield brighten(x, (number - frames // 2) * _BRIGHTER_PERCENT[constants] / 100)
