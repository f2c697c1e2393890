"""The image moved, turned and scaled as a whole; nothing here is random."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hardtack.data.corruptions import Constants
from hardtack.data.perturbations.canvas import about_centre, on_canvas, take, warp

_FIRST_SHIFT: dict[Constants, int] = {"cifar": -7, "imagenet": -20}  # pixels to the right
_SCALES: dict[Constants, tuple[float, float]] = {"cifar": (70, 2), "imagenet": (40, 2.5)}  # first and step, in percent


def translate(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """From the left to the right, a pixel a frame: by −7 … 8 pixels (ImageNet-P: −20 … 20).

    The published pixels, whole ones; beyond the image lies what `canvas` says.
    """
    canvas = on_canvas(x, constants)
    width = canvas.size[1]
    rows, columns = (place.long().to(x.device) for place in canvas.window)
    for number in range(frames):
        source = columns - (number + _FIRST_SHIFT[constants])
        inside = (source >= 0) & (source < width)
        place = rows * width + source.clamp(0, width - 1)
        yield torch.where(inside, take(canvas.levels, place), 0) / 255


def rotate(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """Turned about the centre from −15 to 15 degrees, a degree a frame, clockwise.

    Pillow's bilinear interpolation, about the centre that torchvision had then, half a pixel off the middle; beyond
    the image lies what `canvas` says.
    """
    canvas = on_canvas(x, constants)
    for number in range(frames):
        yield warp(canvas, about_centre(canvas, degrees=number - frames // 2))


def scale(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """Enlarged from 0.7 to 1.3 times its size (ImageNet-P: from 0.4 to 1.15), in even steps.

    As `rotate`: Pillow's bilinear interpolation, which takes the four nearest pixels however small the image becomes.
    """
    canvas = on_canvas(x, constants)
    first, step = _SCALES[constants]
    for number in range(frames):
        yield warp(canvas, about_centre(canvas, scale=(number * step + first) / 100))
