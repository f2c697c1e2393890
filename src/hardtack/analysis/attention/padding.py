"""Windows that extend beyond the image: which of their positions are padding, and maps without padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def find_inside(module: nn.Module, side: int, windows: int, map_: tuple[int, int]) -> Tensor | None:
    """windows×side²: which positions of the windows are inside a feature map of this height and width; None if unknown.

    Padding is at the right and at the bottom. timm shifts the feature map before padding. torchvision's module applies
    the shift itself, after padding, unless there is only one window.
    """
    whole = [-(-length // side) * side for length in map_]
    if whole[0] * whole[1] != windows * side**2:
        return None
    inside = torch.zeros(whole, dtype=torch.bool)
    inside[: map_[0], : map_[1]] = True
    shift = getattr(module, "shift_size", (0, 0))
    moved = [0 if side >= length else -by for length, by in zip(whole, shift, strict=True)]
    inside = inside.roll(moved, dims=(0, 1))
    return inside.unflatten(1, (-1, side)).unflatten(0, (-1, side)).transpose(1, 2).reshape(windows, side**2)


def without_padding(weights: Tensor, inside: Tensor) -> Tensor:
    """Attention among the positions inside the image; rows are normalised again to sum to one.

    With several windows the shape N×heads×windows×queries×keys is kept: keys outside get weight 0, rows of queries
    outside are NaN. A single window is reduced to the positions inside.
    """
    inside = inside.to(weights.device)
    if len(inside) == 1:
        among = weights[..., inside[0], :][..., inside[0]]
        return among / among.sum(dim=-1, keepdim=True).clamp_min(1e-30)
    among = weights * inside[:, None, :]
    among = among / among.sum(dim=-1, keepdim=True).clamp_min(1e-30)
    return among.masked_fill(~inside[:, :, None], torch.nan)
