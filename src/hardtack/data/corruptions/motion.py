"""Motion blur as ImageMagick's MotionBlurImage computes it, on batches in which each image has its own angle.

A pixel becomes the weighted mean of the pixels that lie ahead of it along the angle: one-sided, Gaussian weights,
every position rounded to a whole pixel, the edge pixel repeated beyond the image. The result is rounded to 8 bits,
because the published generators hand images to ImageMagick and take them back as 8-bit PNG files. (Its PNG writer
rounded when those files were made, in 2018; releases since the end of 2019 cut off instead, 0.5 levels darker.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants

# (radius, sigma) by severity
_CONSTANTS: dict[Constants, tuple[tuple[float, float], ...]] = {
    "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
}
_ANGLE = 0  # stream of random numbers


@corruptions.register("motion_blur", stream=6, help="blur along a line, as from a moving camera")
def motion_blur(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Blur along a straight line at a random angle of −45 … 45 degrees.

    ImageMagick's weights, offsets, edges and 8-bit rounding; sums in float32 where it has float64, so about one value
    in a hundred thousand lands on the neighbouring grey level. Grey images, which the original gets back as one
    channel and copies to three, need no case of their own: their three channels are blurred alike.
    """
    radius, sigma = _CONSTANTS[constants][severity - 1]
    return blur_along(x, draw_angles(keys, -45, 45, _ANGLE), radius, sigma)


def draw_angles(keys: Tensor, low: float, high: float, stream: int) -> Tensor:
    """N float64, uniform in degrees: the sines of float32 angles would now and then round to another pixel."""
    return randomness.uniform(keys, (), stream).double() * (high - low) + low


def blur_along(x: Tensor, angle_degrees: Tensor, radius: float, sigma: float) -> Tensor:
    """`x` N×C×H×W in steps of 1/255, each image blurred along its angle (N); in steps of 1/255 again.

    At 0 degrees a pixel takes from its right, at 90 from below.
    """
    weights = motion_blur_kernel(radius, sigma)
    down, right = motion_blur_offsets(angle_degrees, len(weights))
    images = _images_at_once(x, margin=len(weights) - 1)
    parts = zip(x.split(images), down.split(images), right.split(images), strict=True)
    return torch.cat([_blur_part(part, weights, rows, columns) for part, rows, columns in parts])


def motion_blur_kernel(radius: float, sigma: float) -> list[float]:
    """2·⌈radius⌉+1 weights at distances 0, 1, 2, …: half a Gaussian, twice as long as the radius says, of sum 1."""
    raw = [math.exp(-(distance**2) / (2 * sigma**2)) for distance in range(2 * math.ceil(radius) + 1)]
    return [weight / sum(raw) for weight in raw]


def motion_blur_offsets(angle_degrees: Tensor, taps: int) -> tuple[Tensor, Tensor]:
    """(down, right), each N×taps int64: where each weight's pixel lies from the pixel it goes to."""
    angle = angle_degrees.double()[:, None] * (math.pi / 180)
    # the vector is made `taps` long and divided by its length again, as the original does: ties depend on it
    below, beside = taps * torch.sin(angle), taps * torch.cos(angle)
    length = torch.hypot(below, beside)
    distance = torch.arange(taps, device=angle.device, dtype=torch.float64)
    down, right = (torch.ceil(distance * step / length - 0.5).long() for step in (below, beside))
    return down, right


def _images_at_once(x: Tensor, *, margin: int) -> int:
    # on the CPU a part should stay in the cache, on a GPU it should fill the device; both bound the memory
    values = 2**27 if x.is_cuda else 2**19
    return max(1, values // (x.shape[1] * (x.shape[2] + 2 * margin) * (x.shape[3] + 2 * margin)))


def _blur_part(x: Tensor, weights: list[float], down: Tensor, right: Tensor) -> Tensor:
    """Sum of copies of the image, each shifted as a whole: windows of one padded image."""
    margin, (height, width) = len(weights) - 1, x.shape[-2:]
    padded = F.pad(x * 255, (margin,) * 4, mode="replicate")
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # N×C×(2·margin+1)×(2·margin+1)×H×W, a view
    image = torch.arange(len(x), device=x.device)
    total = torch.zeros_like(x)
    for tap, weight in enumerate(weights):
        total.add_(windows[image, :, down[:, tap] + margin, right[:, tap] + margin], alpha=weight)
    return (total + 0.5).floor() / 255
