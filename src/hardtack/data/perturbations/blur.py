"""The blurs: a motion that turns, and a zoom that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.motion import blur_along
from hardtack.data.perturbations.canvas import about_centre, on_canvas, warp


class _Motion(NamedTuple):
    radius: float
    sigma: float
    degrees: int  # from frame to frame; the last frame is at 0


_MOTION: dict[Constants, _Motion] = {"cifar": _Motion(6, 1.8, 9), "imagenet": _Motion(10, 3, 4)}
_ZOOM_STEP = 0.004


def motion_blur(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """Blur along a straight line that turns from frame to frame: from −180 degrees (ImageNet-P: −120) to 0.

    ImageMagick's motion blur as in the corruption; nothing is random, and no frame is the image itself.
    """
    motion = _MOTION[constants]
    for number in range(frames):
        angle = x.new_full((len(x),), (number - frames + 1) * motion.degrees, dtype=torch.float64)
        yield blur_along(x, angle, motion.radius, motion.sigma)


def zoom_blur(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """The image, then its mean with enlargements by 1.004, 1.008 …: frame i has i of them.

    The published steps, Pillow's bilinear enlargement and the float32 mean included; nothing is random. Beyond the
    image lies what `canvas` says.
    """
    canvas = on_canvas(x, constants)
    total = x.clone()
    yield x
    for number in range(1, frames):
        total += warp(canvas, about_centre(canvas, scale=1 + _ZOOM_STEP * number))
        # divided by a tensor: by a number, some devices multiply with its rounded inverse
        mean = total / torch.full_like(total[:1], number + 1)
        yield mean.mul_(255).floor_() / 255
