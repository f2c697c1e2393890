"""Brightness, saturation and contrast: what happens to a pixel depends on its colour, not on its neighbours.

The published functions compute in float64 and cut off to 8 bits, through HSV and back for two of them. Colours often
land on whole grey levels then, or a rounding error below, which is a level lower; so the arithmetic is scikit-image's,
operation by operation, and the result theirs to the last bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.parts import in_parts

_BRIGHTER: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.05, 0.1, 0.15, 0.2, 0.3),
    "imagenet": (0.1, 0.2, 0.3, 0.4, 0.5),
}
_CONTRAST: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.75, 0.5, 0.4, 0.3, 0.15),
    "imagenet": (0.4, 0.3, 0.2, 0.1, 0.05),
}
# (factor, added) by severity: the first two severities take colour away, the others add it
_SATURATION: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}


@corruptions.register("brightness", stream=11, help="brighter colours (value of HSV)")
def brightness(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Raise the value of HSV by a constant, up to 1.

    The published function to the last bit; nothing is random.
    """
    return brighten(x, _BRIGHTER[constants][severity - 1])


def brighten(x: Tensor, added: float) -> Tensor:
    """`x` in steps of 1/255, with so much added to the value of HSV (or, below 0, taken away); within 0 … 1."""

    def lift(x: Tensor) -> Tensor:
        hue, saturation, value = to_hsv(_exact(x))
        return _cut_off(from_hsv(hue, saturation, (value + added).clamp(0, 1)))

    return in_parts(lift, x)


@corruptions.register("saturate", stream=19, help="paler or stronger colours (saturation of HSV)")
def saturate(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Multiply the saturation of HSV and add to it, within 0 … 1.

    The published function to the last bit; nothing is random. As there, a grey pixel has hue 0, so that adding
    saturation (severities 4 and 5) turns it reddish.
    """
    factor, added = _SATURATION[constants][severity - 1]

    def recolour(x: Tensor) -> Tensor:
        hue, saturation, value = to_hsv(_exact(x))
        return _cut_off(from_hsv(hue, (saturation * factor + added).clamp(0, 1), value))

    return in_parts(recolour, x)


@corruptions.register("contrast", stream=12, help="values moved towards their mean")
def contrast(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Pull every channel towards its mean over the image.

    The published function; nothing is random. The mean is rounded once, where the original's sum is at every pixel.
    """
    factor = _CONTRAST[constants][severity - 1]

    def flatten(x: Tensor) -> Tensor:
        # a sum of whole numbers, exact in float64: the same in every batch and on every device
        total = (x * 255).round().sum(dim=(2, 3), keepdim=True, dtype=torch.float64)
        mean = total / (255 * x.shape[2] * x.shape[3])
        return _cut_off((_exact(x) - mean) * factor + mean)

    return in_parts(flatten, x)


def _exact(x: Tensor) -> Tensor:
    """Grey levels over 255 in float64: what NumPy makes of an image file."""
    # divided by a tensor: by a number, some devices multiply with its rounded inverse
    levels = (x * 255).round().double()
    return levels / torch.full_like(levels[:1], 255)


def _cut_off(x: Tensor) -> Tensor:
    return (x.clamp_(0, 1) * 255).floor_().float() / 255


def to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """N×3×H×W to hue, saturation and value, N×H×W each in 0 … 1, as scikit-image's rgb2hsv; grey has hue 0."""
    red, green, blue = x.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    grey = chroma == 0
    divisor = chroma.masked_fill(grey, 1)
    hue = torch.where(green == value, 2 + (blue - red) / divisor, (green - blue) / divisor)
    hue = torch.where(blue == value, 4 + (red - green) / divisor, hue)
    hue = (hue / torch.full_like(hue[:1], 6)).masked_fill_(grey, 0)
    return torch.where(hue < 0, hue + 1, hue), chroma / value.masked_fill(grey, 1), value


def from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """N×H×W each to N×3×H×W, as scikit-image's hsv2rgb."""
    turned = hue * 6
    sector = turned.floor()
    part = turned - sector
    at = [sector == number for number in range(6)]
    part = torch.where(at[1] | at[3] | at[5], part, 1 - part)  # a channel falls in odd sectors, rises in even ones
    low, middle = value * (1 - saturation), value * (1 - part * saturation)
    channels = []
    for first in (5, 1, 3):  # sector in which red, green, blue begins to be the high channel
        channel = torch.where(at[(first + 2) % 6] | at[first - 1], middle, low)
        channels.append(torch.where(at[first] | at[(first + 1) % 6], value, channel))
    return torch.stack(channels, dim=1)
