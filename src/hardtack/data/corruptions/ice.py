"""Drawn pictures of ice on a window, for frost without its photographs. Nothing here depends on the run.

A window is covered by needles that grew from scattered points until they met: every pixel belongs to the needle that
reaches it first, needles being fast along their axis and slow across. A needle is bright along its axis and carries
barbs like a feather's. A plasma cloud gives some places more ice than others. Colours and contrast are set so that
the five pictures together are about as bright as the photographs are.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.data.corruptions.fog import draw_plasma, plasma

_HEIGHT, _WIDTH = 320, 480
# (needles, length over width, barbs' period in pixels, share of the cloud, mean colour, deviation) of each picture
_STYLES = (
    (60, 5.0, 9.0, 0.7, (80, 148, 166), 20),
    (220, 8.0, 6.0, 0.3, (200, 205, 214), 22),
    (260, 4.0, 5.0, 0.4, (200, 205, 214), 22),
    (320, 3.0, 4.0, 0.4, (138, 153, 165), 28),
    (160, 6.0, 5.0, 0.5, (112, 123, 135), 43),
)


def draw_ice(count: int) -> list[np.ndarray]:
    """`count` pictures (at most as many as there are styles), H×W×3 uint8, red first; always the same."""
    return [_picture(number) for number in range(count)]


def _picture(number: int) -> np.ndarray:
    needles, slenderness, period, cloud_share, colour, deviation = _STYLES[number]
    key = randomness.make_keys(torch.tensor([number]), 0x1CE)
    ice = _feathers(key, needles, slenderness, period)
    cloud = plasma(draw_plasma(randomness.fold(key, 1), max(_HEIGHT, _WIDTH)), 1.5)[0, :_HEIGHT, :_WIDTH]
    grey = (1 - cloud_share) * _standard(ice) + cloud_share * _standard(cloud)
    picture = torch.tensor(colour)[:, None, None] + deviation * _standard(grey)
    return picture.clamp(0, 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


def _standard(layer: Tensor) -> Tensor:
    return (layer - layer.mean()) / layer.std()


def _feathers(key: Tensor, needles: int, slenderness: float, period: float) -> Tensor:
    """H×W brightness of the needle that reaches each pixel first."""
    row, column, angle = randomness.uniform(key, (3, needles, 1), stream=1)[0]
    sine, cosine = torch.sin(angle * math.pi), torch.cos(angle * math.pi)
    across = torch.arange(_WIDTH) - column * _WIDTH
    brightness = torch.empty(_HEIGHT, _WIDTH)
    for y in range(_HEIGHT):
        down = y - row * _HEIGHT
        along, beside = across * cosine + down * sine, (down * cosine - across * sine).abs()
        reached = along.abs() + slenderness * beside
        first, owner = reached.min(dim=0)
        along, beside = (place.gather(0, owner[None])[0] for place in (along, beside))
        barbs = torch.cos((along.abs() - beside) * (2 * math.pi / period))
        spine = torch.exp(-beside / 2)
        edge = first / math.sqrt(slenderness * _HEIGHT * _WIDTH / needles)
        brightness[y] = spine + 0.35 * barbs * (1 - spine) - 0.5 * edge
    return brightness
