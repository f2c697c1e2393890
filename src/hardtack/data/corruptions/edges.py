"""Edges of grey layers and the distance to them, as OpenCV computes them: what spatter's drops are shaped by.

Whole numbers throughout, N×H×W int32: equal to OpenCV's edges, and to its distances as it computes them on Intel's
and compatible processors (elsewhere it has 16 binary digits in place of four decimal ones; hardly a pixel differs).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.data.corruptions.filters import pad

ONE = 10_000
"""One pixel, in the units of distances."""
_DIAGONAL, _KNIGHT = 14_000, 21_969  # steps to a corner and, as a chess knight's, one aside and two on
_TANGENT = 13573  # of 22.5 degrees, times 2^15


def find_edges(levels: Tensor, low: int, high: int) -> Tensor:
    """N×H×W bool: Canny's detector on grey levels 0–255, Sobel's 3×3 gradients, their absolute values added."""
    padded = pad(pad(levels, 1, "nearest", -2), 1, "nearest", -1)
    rows, columns = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:], padded[:, 2:] - padded[:, :-2]
    across = rows[..., 2:] - rows[..., :-2]
    down = columns[..., :-2] + 2 * columns[..., 1:-1] + columns[..., 2:]
    strength = across.abs() + down.abs()
    thin = (strength > low) & _is_ridge(strength, across, down)
    return _grow(thin & (strength > high), thin)


def _is_ridge(strength: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Whether a gradient is the strongest along its own direction, out of four; ties go to the later pixel but one."""
    height, width = strength.shape[-2:]
    padded = F.pad(strength, (1, 1, 1, 1))

    def beside(row: int, column: int) -> Tensor:
        return padded[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    horizontal = (strength > beside(0, -1)) & (strength >= beside(0, 1))
    vertical = (strength > beside(-1, 0)) & (strength >= beside(1, 0))
    falling = (strength > beside(-1, -1)) & (strength > beside(1, 1))
    rising = (strength > beside(-1, 1)) & (strength > beside(1, -1))
    diagonal = torch.where((across < 0) != (down < 0), rising, falling)
    flat, steep = across.abs() * _TANGENT, down.abs() << 15
    other = torch.where(steep > flat + (across.abs() << 16), vertical, diagonal)
    return torch.where(steep < flat, horizontal, other)


def _grow(seeds: Tensor, allowed: Tensor) -> Tensor:
    """All allowed pixels that a chain of allowed neighbours (of eight) joins to a seed."""
    reached, allowed = seeds[:, None].float(), allowed[:, None].float()
    while True:
        before = reached
        for _ in range(4):  # one look at the device every few steps
            reached = F.max_pool2d(reached, 3, stride=1, padding=1) * allowed
        if torch.equal(before, reached):
            return reached[:, 0] > 0


def distance_to(edges: Tensor, *, limit: int) -> Tensor:
    """N×H×W int32, in units of `ONE`: the distance to the nearest edge by steps of 1, 1.4 and 2.1969 pixels.

    At most `limit` pixels. Two sweeps, down and back up, as Borgefors' chamfer algorithm ("Distance transformations
    in digital images", 1986) goes; along a row, powers of two at a time.
    """
    far = limit * ONE
    rows = torch.where(edges, 0, far).to(torch.int32).transpose(0, 1).contiguous()  # a row of all images at a time
    _sweep(rows, far)
    rows = rows.flip(0, 2)
    _sweep(rows, far)
    return rows.flip(0, 2).transpose(0, 1)


def _sweep(rows: Tensor, far: int) -> None:
    """Let distances H×N×W flow down and to the right, in place."""
    width = rows.shape[-1]
    above = twice_above = rows.new_full((rows.shape[1], width + 4), far)
    for row in rows:
        nearest = torch.minimum(above[:, 2:-2] + ONE, row)
        for source, column, step in (
            (above, 1, _DIAGONAL),
            (above, 3, _DIAGONAL),
            (above, 0, _KNIGHT),
            (above, 4, _KNIGHT),
            (twice_above, 1, _KNIGHT),
            (twice_above, 3, _KNIGHT),
        ):
            nearest = torch.minimum(nearest, source[:, column : column + width] + step)
        stride = 1
        while stride < min(width, far // ONE):
            nearest[:, stride:] = torch.minimum(nearest[:, stride:], nearest[:, :-stride] + stride * ONE)
            stride *= 2
        row.copy_(nearest)
        twice_above, above = above, F.pad(nearest, (2, 2), value=far)
