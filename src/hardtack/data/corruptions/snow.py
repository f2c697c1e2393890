"""Snow: bright flakes drawn out by the wind, over an image that has gone pale."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.motion import blur_along, draw_angles
from hardtack.data.corruptions.parts import in_parts
from hardtack.data.corruptions.zoom import zoom_middle

# (mean, deviation, zoom, threshold, radius, sigma, share of the image) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float, float, float, float, float, float], ...]] = {
    "cifar": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "imagenet": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
}
_NOISE, _ANGLE = 0, 1  # streams of random numbers


@corruptions.register("snow", stream=8, help="falling flakes and a whitened image")
def snow(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Add flakes (enlarged noise above a threshold, blurred along the wind) and their image turned by 180 degrees.

    The published function, with motion blur as ImageMagick's (see motion_blur) and 8 bits before and after it.
    The original enlarges square layers; the sides of others are enlarged each by itself.
    """
    mean, deviation, zoom, threshold, radius, sigma, share = _CONSTANTS[constants][severity - 1]

    def add_snow(x: Tensor, keys: Tensor) -> Tensor:
        noise = mean + deviation * randomness.normal(keys, (1, *x.shape[-2:]), _NOISE)
        layer = blur_along(flakes(noise, zoom, threshold), draw_angles(keys, -135, -45, _ANGLE), radius, sigma)
        return pale(x, share) + layer + layer.flip(2, 3)

    return in_parts(add_snow, x, keys)


def flakes(noise: Tensor, zoom: float, threshold: float) -> Tensor:
    """N×1×H×W noise, its middle enlarged by `zoom`, below the threshold black; in steps of 1/255."""
    noise = zoom_middle(noise, zoom)
    return (noise.masked_fill(noise < threshold, 0).clamp(0, 1) * 255).floor() / 255


def pale(x: Tensor, share: float) -> Tensor:
    """`share` of the image and the rest of it lightened: 1.5 times its luma plus a half, where that is brighter."""
    red, green, blue = x.split(1, dim=1)
    light = (0.299 * red + 0.587 * green + 0.114 * blue) * 1.5 + 0.5
    return torch.lerp(torch.maximum(x, light), x, share)
