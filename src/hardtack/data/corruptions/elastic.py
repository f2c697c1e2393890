"""Elastic transform: a random affine map of the whole image, then a smooth random displacement of every pixel."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.parts import in_parts

# (displacement, its smoothing, affine shift) by severity, in units of 32 and of 244 (sic) pixels
_CONSTANTS: dict[Constants, tuple[tuple[float, float, float], ...]] = {
    "cifar": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "imagenet": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
}
_UNIT: dict[Constants, int] = {"cifar": 32, "imagenet": 244}
_CORNERS, _FIELD = 0, 1  # streams of random numbers
_STEPS = 32  # OpenCV's places between two pixels


@corruptions.register("elastic_transform", stream=13, help="a random affine map and a smooth displacement field")
def elastic_transform(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Move three points at random and the image with them, then every pixel by a smoothed random field.

    The published function, with OpenCV's way of its time to warp (places rounded to 1/32 of a pixel; OpenCV 5
    rounds no more) and SciPy's smoothing and interpolation, each with its own reflection at the edge. The constants
    are pixels of 32 and 244-pixel images whatever the image's size, as in the original. With CIFAR's constants of
    severity 1 nothing but the affine map is left.
    """
    displacement, sigma, shift = (value * _UNIT[constants] for value in _CONSTANTS[constants][severity - 1])

    def transform(x: Tensor, keys: Tensor) -> Tensor:
        x = warp_affine(x, shift * (2 * randomness.uniform(keys, (3, 2), _CORNERS) - 1))
        if displacement == 0:
            return x
        field = 2 * randomness.uniform(keys, (2, *x.shape[-2:]), _FIELD) - 1
        return displace(x, displacement * smooth(field, sigma))

    return in_parts(transform, x, keys)


def warp_affine(x: Tensor, shift: Tensor) -> Tensor:
    """`x` N×3×H×W under the affine map that moves three points by `shift` (N×3×2, columns before rows).

    The points lie a third of the shorter side from the centre: below right, above right, above left. The original
    takes the centre's row for its column and the reverse, which a square image does not show; so does this.
    """
    height, width = x.shape[-2:]
    side = max(1, min(height, width) // 3)
    across, along = height // 2, width // 2
    # float32 as the original's points; everything after in float64
    low_right, high_right, high_left = (
        torch.stack([shift[:, point, 0] + column, shift[:, point, 1] + row], dim=1).double()
        for point, (column, row) in enumerate(
            ((across + side, along + side), (across + side, along - side), (across - side, along - side))
        )
    )
    right = (high_right - high_left) / (2 * side)  # where one step to the right leads, N×2
    down = (low_right - high_right) / (2 * side)
    scale = right[:, 0] * down[:, 1] - right[:, 1] * down[:, 0]
    # the inverse map: an output's column and row to the input's
    column = torch.stack([down[:, 1], -down[:, 0]], dim=1) / scale[:, None]
    row = torch.stack([-right[:, 1], right[:, 0]], dim=1) / scale[:, None]
    places = []
    for weights, start in ((row, along - side), (column, across + side)):
        constant = start - (weights * high_right).sum(1)
        places.append(_fixed_point(weights, constant, height, width))
    (rows, row_part), (columns, column_part) = places
    return _interpolate(x, rows, columns, row_part, column_part, _reflect_without_edge)


def _fixed_point(weights: Tensor, constant: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Whole and broken part, N×H×W float32, of a linear map of the pixels: in 1/1024, then to the nearest 1/32."""
    across = (weights[:, :1] * torch.arange(width, device=weights.device) * 1024).round().to(torch.int32)
    along = weights[:, 1:] * torch.arange(height, device=weights.device) + constant[:, None]
    along = (along * 1024).round().to(torch.int32) + 512 // _STEPS
    place = (along[:, :, None] + across[:, None, :]) >> 5
    return (place >> 5).float(), (place & (_STEPS - 1)).float() / _STEPS


def smooth(field: Tensor, sigma: float) -> Tensor:
    """…×H×W smoothed as scipy.ndimage.gaussian_filter does: cut off at 3 sigmas, reflected at the edge."""
    rows, columns = (_smoothing_matrix(size, sigma, field.device) for size in field.shape[-2:])
    # in float64: a product of float32 matrices may run in TF32, which would move pixels
    return (rows @ (field.double() @ columns.mT)).to(field.dtype)


@lru_cache(maxsize=64)
def _smoothing_matrix(size: int, sigma: float, device: torch.device) -> Tensor:
    """size×size float64, edges included: the filter may be several times as wide as the image."""
    radius = int(3 * sigma + 0.5)
    offset = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (offset / sigma) ** 2)
    source = (np.arange(size)[:, None] + offset) % (2 * size)
    source = np.minimum(source, 2 * size - 1 - source)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size)[:, None], source), weight / weight.sum())
    return torch.from_numpy(matrix).to(device)


def displace(x: Tensor, field: Tensor) -> Tensor:
    """`x` N×3×H×W sampled at every pixel's place plus `field` (N×2×H×W, columns before rows), bilinear."""
    height, width = x.shape[-2:]
    whole = field.floor()
    column_part, row_part = (field - whole).unbind(1)
    rows = whole[:, 1] + torch.arange(height, device=x.device)[:, None]
    columns = whole[:, 0] + torch.arange(width, device=x.device)
    return _interpolate(x, rows, columns, row_part, column_part, _reflect_with_edge)


def _interpolate(
    x: Tensor, rows: Tensor, columns: Tensor, row_part: Tensor, column_part: Tensor, at: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """N×3×H×W between pixels (rows, columns) and (rows+1, columns+1), N×H×W each; `at` brings places into the image."""
    height, width = x.shape[-2:]
    pixels = x.flatten(2)

    def take(place: Tensor) -> Tensor:
        return pixels.gather(2, place.long().flatten(1)[:, None].expand(-1, 3, -1)).view_as(x)

    upper, lower = at(rows, height) * width, at(rows + 1, height) * width
    left, right = at(columns, width), at(columns + 1, width)
    row_part, column_part = row_part[:, None], column_part[:, None]
    above = torch.lerp(take(upper + left), take(upper + right), column_part)
    below = torch.lerp(take(lower + left), take(lower + right), column_part)
    return torch.lerp(above, below, row_part)


def _reflect_without_edge(place: Tensor, size: int) -> Tensor:
    """… 2 1 | 0 1 2 … 2 1 …: whole numbers as float32, any distance away."""
    period = max(1, 2 * size - 2)
    place = place - (place / period).floor() * period
    return torch.minimum(place, period - place).clamp(0, size - 1)


def _reflect_with_edge(place: Tensor, size: int) -> Tensor:
    """… 1 0 | 0 1 2 … 2 2 1 …"""
    period = 2 * size
    place = place - (place / period).floor() * period
    return torch.minimum(place, period - 1 - place).clamp(0, size - 1)
