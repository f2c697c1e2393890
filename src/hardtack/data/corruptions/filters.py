"""Filters of whole batches as sums of shifted copies, with the arithmetic of the libraries that made the originals.

The published scripts cut values off to 8 bits. Flat and evenly changing parts of an image land on a whole grey level
or a hair below it, and which of the two is decided by the last bits of a sum: so sums here are in float64, in the
libraries' order, each product rounded before it is added. No convolution routine is called: those may use TF32 on a
GPU and another order for another size of batch.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

Border = Literal["nearest", "reflect"]
"""Beyond the edge: the edge's pixel (aaa|abcd|ddd), or the image mirrored in that pixel (dcb|abcd|cba)."""


def gaussian_filter(x: Tensor, sigma: float) -> Tensor:
    """…×H×W smoothed as scikit-image's `gaussian` does it, equal to SciPy's filter in every bit for float64.

    The kernel is cut off at 4 sigma, edge pixels are repeated, and columns are done first, outermost pixels first.
    """
    radius = int(4 * sigma + 0.5)
    distance = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * distance**2)
    weights = (weights / weights.sum())[radius:].tolist()
    order = [0, *range(radius, 0, -1)]
    for dim in (-2, -1):
        x = weighted_pairs(x, [(place, weights[place]) for place in order], "nearest", dim)
    return x


def weighted_pairs(x: Tensor, taps: list[tuple[int, float]], border: Border, dim: int) -> Tensor:
    """Sum over (distance, weight): the weight times both pixels at that distance along `dim`. Distance 0 is first."""
    size, radius = x.shape[dim], max(distance for distance, _ in taps)
    total = x * taps[0][1]
    padded = pad(x, radius, border, dim)
    for distance, weight in taps[1:]:
        pair = padded.narrow(dim, radius - distance, size) + padded.narrow(dim, radius + distance, size)
        total.add_(pair.mul_(weight))  # not add_(pair, alpha=weight): that would not round the product
    return total


def correlate(x: Tensor, kernel: Tensor, border: Border) -> Tensor:
    """…×H×W of whole numbers, weighted by a K×K kernel (K odd) that is the same upside down and mirrored.

    In float64, with weights that float32 holds, every product and sum is exact: no order matters. The run of equal
    weights in the middle of each kernel row, most of a disc, is taken from sums along the image's rows.
    """
    radius, (height, width) = len(kernel) // 2, x.shape[-2:]
    padded = pad(pad(x, radius, border, -2), radius, border, -1)
    sums = torch.nn.functional.pad(padded.cumsum(dim=-1), (1, 0)) if radius > 2 else padded
    total = torch.zeros_like(x)
    for distance in range(radius + 1):
        weights = kernel[radius + distance, radius:].tolist()  # from the middle outwards
        run = sum(weight == weights[0] for weight in weights) if radius > 2 else 0
        above_below = sorted({radius - distance, radius + distance})
        if run:
            row_sums = _add_rows(sums, above_below, height)
            box = row_sums.narrow(-1, radius + run, width) - row_sums.narrow(-1, radius - run + 1, width)
            total.add_(box, alpha=weights[0])
        rows = _add_rows(padded, above_below, height)
        for column in range(run, radius + 1):
            for start in {radius - column, radius + column} if weights[column] else ():
                total.add_(rows.narrow(-1, start, width), alpha=weights[column])
    return total


def _add_rows(padded: Tensor, starts: list[int], height: int) -> Tensor:
    parts = [padded.narrow(-2, start, height) for start in starts]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def pad(x: Tensor, margin: int, border: Border, dim: int) -> Tensor:
    """`x` with `margin` more places at both ends of `dim`; the margin may be longer than the image."""
    size = x.shape[dim]
    place = torch.arange(-margin, size + margin, device=x.device)
    if border == "reflect":
        period = max(1, 2 * (size - 1))
        place = place % period
        place = torch.minimum(place, period - place)
    return x.index_select(dim, place.clamp(0, size - 1))


def to_levels(x: Tensor) -> Tensor:
    """The grey levels of an image in steps of 1/255, as float64 whole numbers."""
    return (x * 255).round().double()


def to_fractions(levels: Tensor) -> Tensor:
    """255ths. Divided by a tensor: by a plain number a GPU would multiply with its reciprocal, and miss by a bit."""
    return levels / torch.full((), 255.0, dtype=levels.dtype, device=levels.device)


def cut_to_levels(x: Tensor) -> Tensor:
    """float64 about [0,1] to the grey level below, as `np.uint8` does it to 255 times the values."""
    return (x.clamp(0, 1) * 255).floor()
