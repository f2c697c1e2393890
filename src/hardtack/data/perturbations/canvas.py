"""What lies around an image, and affine maps of it as Pillow computes them.

CIFAR-10-P's generator moves the 32-pixel image itself, and black comes in. ImageNet-P's moves the photograph, its
shorter side 256 pixels, and cuts out the middle 224; here there is only what was cut out. So the 16 pixels around it
(of other sizes: a fourteenth of the side) are its mirror image, and black lies beyond, as around a square photograph.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.filters import pad
from hardtack.data.corruptions.parts import in_parts


class Canvas(NamedTuple):
    """`levels`: N×3×(H+2·top)×(W+2·left), whole grey levels; the image is its middle."""

    levels: Tensor
    top: int
    left: int

    @property
    def size(self) -> tuple[int, int]:
        return self.levels.shape[-2], self.levels.shape[-1]

    @property
    def window(self) -> tuple[Tensor, Tensor]:
        """Rows (H×1) and columns (1×W) of the image on the canvas, float64, on the CPU."""
        height, width = self.size
        rows, columns = torch.arange(self.top, height - self.top), torch.arange(self.left, width - self.left)
        return rows.double()[:, None], columns.double()[None]


Affine = tuple[float, float, float, float, float, float]
"""Output to input, both in pixels from the upper left corner: column = a·column + b·row + c; row = d, e, f alike."""


def on_canvas(x: Tensor, constants: Constants) -> Canvas:
    """`x` N×3×H×W in steps of 1/255 with what lies around it."""
    levels = (x * 255).round()
    if constants == "cifar":
        return Canvas(levels, 0, 0)
    top, left = (round(side / 14) for side in x.shape[-2:])
    return Canvas(pad(pad(levels, top, "reflect", -2), left, "reflect", -1), top, left)


def about_centre(canvas: Canvas, *, scale: float = 1.0, degrees: float = 0.0) -> Affine:
    """Enlarge, or turn clockwise, about torchvision's centre of that time: half a pixel beyond the middle."""
    height, width = canvas.size
    row, column = 0.5 * height + 0.5, 0.5 * width + 0.5
    cosine, sine = math.cos(math.radians(degrees)) / scale, math.sin(math.radians(degrees)) / scale
    return (
        cosine, sine, column - cosine * column - sine * row,
        -sine, cosine, row + sine * column - cosine * row,
    )  # fmt: skip


def warp(canvas: Canvas, matrix: Affine) -> Tensor:
    """N×3×H×W: the image's window after the map, bilinear, cut off to whole grey levels; over 255.

    Pillow's rules: black where a pixel's centre falls outside; inside, edge pixels are repeated.
    """
    height, width = canvas.size
    rows, columns = (place + 0.5 for place in canvas.window)
    a, b, c, d, e, f = matrix
    column, row = a * columns + b * rows + c, d * columns + e * rows + f
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    row, column = row - 0.5, column - 0.5
    top, left = row.floor(), column.floor()
    places = [
        ((top + down).clamp(0, height - 1) * width + (left + right).clamp(0, width - 1)).long()
        for down in (0, 1)
        for right in (0, 1)
    ]
    device = canvas.levels.device
    places, inside = [place.to(device) for place in places], inside.to(device)
    down, right = (row - top).to(device), (column - left).to(device)

    def make(levels: Tensor) -> Tensor:
        upper_left, upper_right, lower_left, lower_right = (take(levels, place) for place in places)
        # in float64 and Pillow's order: flat and evenly changing parts land on whole levels, or a hair below
        upper = upper_left + (upper_right - upper_left) * right
        lower = lower_left + (lower_right - lower_left) * right
        return ((upper + (lower - upper) * down) * inside).floor().float() / 255

    return in_parts(make, canvas.levels, values_cuda=2**24)


def take(levels: Tensor, place: Tensor) -> Tensor:
    """N×3×h×w of N×3×H×W: the pixels at `place` (h×w, row·W + column)."""
    return levels.flatten(2).index_select(2, place.flatten()).unflatten(2, place.shape)
