"""Gaussian blur and defocus blur: one kernel for all images."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.filters import (
    correlate,
    cut_to_levels,
    gaussian_filter,
    to_fractions,
    to_levels,
    weighted_pairs,
)
from hardtack.data.corruptions.parts import in_parts
from hardtack.data.corruptions.zoom import zoom_middle as zoom_middle

# by severity: sigma; (radius of the disc, sigma that smooths its edge)
_GAUSSIAN: dict[Constants, tuple[float, ...]] = {"cifar": (0.4, 0.6, 0.7, 0.8, 1), "imagenet": (1, 2, 3, 4, 6)}
_DEFOCUS: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
}


@corruptions.register("gaussian_blur", stream=17, help="blur by a normal distribution")
def gaussian_blur(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Smooth by a Gaussian.

    The published function: the same 8 bits as scikit-image's `gaussian` leads to, cut off where the script cuts.
    """
    sigma = _GAUSSIAN[constants][severity - 1]

    def blur(x: Tensor) -> Tensor:
        return (cut_to_levels(gaussian_filter(to_fractions(to_levels(x)), sigma)) / 255).to(x.dtype)

    return in_parts(blur, x)


@corruptions.register("defocus_blur", stream=4, help="blur by a disc, as from a lens out of focus")
def defocus_blur(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Average over a disc, as a lens out of focus does.

    The published function: the same 8 bits as OpenCV's `filter2D` leads to. Its kernel is kept as it is: smoothed in
    a frame that mirrors the discs of radius 8 and 10 (ImageNet's severities 4 and 5) at its edge, so that their
    weights sum to 1.013 and 1.011; and rounded to float32, so that flat parts lose a grey level at severities 1 to 3.
    """
    kernel = disc(*_DEFOCUS[constants][severity - 1])

    def blur(x: Tensor) -> Tensor:
        return (cut_to_levels(to_fractions(correlate(to_levels(x), kernel, "reflect"))) / 255).to(x.dtype)

    return in_parts(blur, x)


@functools.lru_cache(maxsize=16)
def disc(radius: float, sigma: float) -> Tensor:
    """K×K float64 kernel: a disc of weight 1, its edge smoothed by a small Gaussian, empty margins cut off.

    Rounded to float32 as often as OpenCV does without fused multiplication: rows first, innermost pixels first.
    """
    reach, smooth = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    place = torch.arange(-reach, reach + 1)
    kernel = (place[:, None] ** 2 + place[None, :] ** 2 <= radius**2).float()
    kernel /= kernel.sum()
    weights = torch.exp(torch.arange(-smooth, smooth + 1, dtype=torch.float64) ** 2 / (-2 * sigma**2))
    taps = list(enumerate((weights / weights.sum()).float()[smooth:].tolist()))
    for dim in (-1, -2):
        kernel = weighted_pairs(kernel, taps, "reflect", dim)
    kernel *= kernel > 1e-15
    margin = int((kernel.sum(dim=0) > 0).int().argmax())
    return kernel[margin : len(place) - margin, margin : len(place) - margin].double()
