"""Zoom blur: the mean of an image and of enlargements of its middle.

Every enlargement is linear and the same for all images, so their mean is one sparse matrix: an output pixel is a
weighted sum of the few pixels along a line towards the centre (about ten of a 32-pixel image's 1024), however many
factors there are. The matrix is applied as a sum of rows of a pixels×images array, in an order that does not depend
on the batch.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants

# (end, step) of the factors, from 1 on, by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "imagenet": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
}
_SLACK = 2.0**-14  # a grey level that fp32 has just missed is that grey level


@corruptions.register("zoom_blur", stream=7, help="mean of enlarged copies, as from a camera moving forward")
def zoom_blur(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Average the image and enlargements of its middle by factors that grow in small steps.

    The published function, its list of factors included: rounding lets some of the lists run one step further than
    meant, to 1.06 and 1.11. Sums are in float32, as there, but in another order: about one value in a thousand, most
    of them in flat parts, lands on the neighbouring grey level. The original takes square images; each side of others
    is cropped and enlarged on its own.
    """
    size = (x.shape[-2], x.shape[-1])
    rows = zoom_rows(size, *_CONSTANTS[constants][severity - 1], str(x.device))
    # at least 16 images: shorter rows are slow to copy
    images = max(16, (2**26 if x.is_cuda else 2**18) // max(1, x[:1].numel()))
    blurred = torch.empty_like(x)
    for part, out in zip(x.split(images), blurred.split(images), strict=True):
        total = rows.apply((part * 255).round().flatten(2).flatten(0, 1).t().contiguous())
        out.copy_(((total + _SLACK).floor() / 255).t().reshape(part.shape))
    return blurred


class SparseRows(NamedTuple):
    """A sparse matrix, rows with the most entries first: place t holds entry t of all rows that have as many."""

    entries: list[tuple[Tensor, Tensor]]  # columns and weights, each as long as there are rows with that entry
    place_of_row: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """The matrix times `x` (columns×anything)."""
        total = torch.zeros_like(x)
        for columns, weights in self.entries:
            total[: len(columns)].addcmul_(x.index_select(0, columns), weights[:, None])
        return total.index_select(0, self.place_of_row)


@functools.lru_cache(maxsize=16)
def zoom_rows(size: tuple[int, int], end: float, step: float, device: str) -> SparseRows:
    """Mean of the identity and of the enlargements by 1, 1+step, … as a matrix over the pixels of one channel."""
    factors = np.arange(1, end, step).tolist()  # numpy's own, for its length
    pixels = size[0] * size[1]
    here = torch.arange(pixels)
    places, weights = [here * pixels + here], [torch.ones(pixels, dtype=torch.float64)]
    for factor in factors:
        (row, row_weight), (column, column_weight) = (zoom_taps(side, factor) for side in size)
        source = row[:, None, :, None] * size[1] + column[None, :, None, :]
        weight = row_weight[:, None, :, None] * column_weight[None, :, None, :]
        places.append((here * pixels + source.flatten(2).flatten(0, 1))[weight.flatten(2).flatten(0, 1) > 0])
        weights.append(weight[weight > 0])
    place, entry = torch.cat(places).unique(return_inverse=True)
    total = torch.zeros(len(place), dtype=torch.float64).index_add_(0, entry, torch.cat(weights))
    return _most_entries_first(place // pixels, place % pixels, total / (len(factors) + 1), device)


@functools.lru_cache(maxsize=256)
def zoom_taps(size: int, factor: float, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """(places, weights), each 2×size: the two pixels that a pixel is interpolated from along one side.

    The middle ⌈size/factor⌉ pixels are stretched to `factor` times as many, rounded, outermost pixel to outermost
    pixel, and as many as there were are cut out of the middle.
    """
    length = math.ceil(size / factor)
    large = round(length * factor)
    place = torch.arange(size, dtype=torch.float64) + (large - size) // 2
    place = place * ((length - 1) / max(1, large - 1))
    low = place.floor().clamp(0, length - 1)
    share = place - low
    start = (size - length) // 2
    places = torch.stack([low, (low + 1).clamp(max=length - 1)]).long() + start
    return places.to(device), torch.stack([1 - share, share]).to(device)


def _most_entries_first(row: Tensor, column: Tensor, weight: Tensor, device: str) -> SparseRows:
    """From the matrix's entries in reading order; every row has one."""
    counts = torch.bincount(row)
    order = counts.argsort(descending=True, stable=True)
    first = counts.cumsum(0) - counts
    entries = []
    for entry in range(int(counts.max())):
        here = first[order[counts[order] > entry]] + entry
        entries.append((column[here].to(device), weight[here].to(device, torch.float32)))
    return SparseRows(entries, order.argsort().to(device))


def zoom_middle(x: Tensor, factor: float) -> Tensor:
    """The middle of N×C×H×W images enlarged by `factor` ≥ 1 to the size they had, bilinear."""
    for dim in (-2, -1):
        (low, high), (_, share) = zoom_taps(x.shape[dim], factor, str(x.device))
        near, far = x.index_select(dim, low), x.index_select(dim, high)
        x = torch.lerp(near, far, share.to(x.dtype).view((-1, 1) if dim == -2 else (-1,)))
    return x
