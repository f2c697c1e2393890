"""Fog: a plasma cloud (the diamond-square algorithm) laid over the image."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.parts import in_parts

# (strength, decay of the cloud's detail) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
}
_FIRST_WIBBLE = 100.0


@corruptions.register("fog", stream=10, help="a random plasma fractal added")
def fog(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Add a plasma cloud and scale so that the image's largest value stays where it was.

    The published function: its diamond-square steps, its random part of wibble² at each level, its stretching of the
    whole cloud to 0 … 1 before the image's part is cut out. The cloud's side is the next power of two that holds the
    image (32 for 32 pixels, 256 for 224, as there). In float32, where the original has float64.
    """
    strength, decay = _CONSTANTS[constants][severity - 1]

    def add_fog(x: Tensor, keys: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        cloud = plasma(draw_plasma(keys, max(height, width)), decay)[:, None, :height, :width]
        highest = x.amax(dim=(1, 2, 3), keepdim=True)
        return (x + strength * cloud) * (highest / (highest + strength))

    return in_parts(add_fog, x, keys)


def draw_plasma(keys: Tensor, size: int) -> list[Tensor]:
    """The cloud's random numbers, coarsest level first: N×3×m×m uniform on [−1, 1) for m = 1, 2, 4, …

    Doubled, the last m is the side of the cloud: the least power of two (2 or more) that is not below `size`.
    """
    draws: list[Tensor] = []
    side = 1
    while True:
        draws.append(randomness.uniform(keys, (3, side, side), stream=len(draws)) * 2 - 1)
        side *= 2
        if side >= size:
            return draws


def plasma(draws: list[Tensor], decay: float) -> Tensor:
    """N×S×S clouds, each stretched to 0 … 1, by the diamond-square algorithm on a torus.

    A level's random part has the amplitude wibble² (sic: the original multiplies twice), and wibble falls by `decay`.
    """
    corners = torch.zeros_like(draws[0][:, 0])
    wibble = _FIRST_WIBBLE
    for square, across, along in (draw.unbind(1) for draw in draws):
        side = corners.shape[-1]
        amplitude = wibble * wibble
        pairs = corners + corners.roll(-1, dims=2)
        centres = (pairs + pairs.roll(-1, dims=1)) / 4 + amplitude * square
        between_columns = (centres + centres.roll(1, dims=1) + pairs) / 4 + amplitude * across
        pairs = corners + corners.roll(-1, dims=1)
        between_rows = (centres + centres.roll(1, dims=2) + pairs) / 4 + amplitude * along
        upper = torch.stack([corners, between_columns], dim=-1)
        lower = torch.stack([between_rows, centres], dim=-1)
        corners = torch.stack([upper, lower], dim=2).view(-1, 2 * side, 2 * side)
        wibble /= decay
    corners = corners - corners.amin(dim=(1, 2), keepdim=True)
    return corners / corners.amax(dim=(1, 2), keepdim=True)
