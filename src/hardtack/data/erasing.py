"""Blanking a part of each image: cutout (DeVries & Taylor, 2017) and random erasing (Zhong et al., 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.data.geometry import draw_boxes, per_image


def box_mask(top: Tensor, left: Tensor, tall: Tensor, wide: Tensor, size: tuple[int, int]) -> Tensor:
    """N×1×H×W bool: inside each image's box; parts of a box beyond the image fall away."""
    rows = torch.arange(size[0], device=top.device)
    columns = torch.arange(size[1], device=top.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + tall)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + wide)[:, None])
    return (in_rows[:, :, None] & in_columns[:, None, :])[:, None]


def cutout(x: Tensor, keys: Tensor, *, side: int, fill: float, stream: int) -> Tensor:
    """A square centred on a random pixel, cut off at the border, set to `fill`."""
    height, width = x.shape[-2:]
    top = randomness.integers(keys, height, (), stream) - side // 2
    left = randomness.integers(keys, width, (), stream + 1) - side // 2
    length = torch.full_like(top, side)
    return torch.where(box_mask(top, left, length, length, (height, width)), fill, x)


def erase(
    x: Tensor, keys: Tensor, *, probability: float, mode: str, fill: float = 0.0,
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0,
    area: tuple[float, float], ratio: tuple[float, float], stream: int,
) -> Tensor:  # fmt: skip
    """A random box of `fill` (mode const), or of noise for each pixel and channel.

    pixel       uniform in [0,1]
    normal      mean ½ and deviation ¼, cut off at 0 and 1
    normalised  standard normal in units of `mean` and `std` (numbers, or 1×3×1×1): timm's mode pixel, clamped to [0,1]
    """
    size = (x.shape[-2], x.shape[-1])
    top, left, tall, wide, fitted = draw_boxes(keys, size, area=area, ratio=ratio, stream=stream, whole=False)
    chosen = fitted & (randomness.uniform(keys, (), stream + 4) < probability)
    inside = box_mask(top, left, tall, wide, size) & per_image(chosen)
    if mode == "const":
        return torch.where(inside, fill, x)
    if mode == "normalised":
        content = (mean + std * randomness.normal(keys, tuple(x.shape[1:]), stream + 5)).clamp(0, 1)
    else:
        content = randomness.uniform(keys, tuple(x.shape[1:]), stream + 5)
    return torch.where(inside, truncated_normal(content) if mode == "normal" else content, x)


def truncated_normal(u: Tensor) -> Tensor:
    """Uniform numbers as normal ones of mean ½ and deviation ¼, cut off at 0 and 1 (two deviations away)."""
    tail = 0.022750131948179195  # of the standard normal beyond two deviations
    return (0.5 + 0.25 * torch.special.ndtri(tail + u * (1 - 2 * tail))).clamp(0, 1)
