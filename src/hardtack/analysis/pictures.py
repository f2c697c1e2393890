"""Images as 8-bit values, for arrays that are kept for display."""

from __future__ import annotations

import torch
from torch import Tensor


def eight_bits(x: Tensor) -> Tensor:
    """Round values in [0,1] to the nearest of 256 levels (uint8)."""
    return (255 * x.clamp(0, 1)).round().to(torch.uint8)


def as_picture(x: Tensor) -> Tensor:
    """N×C×H×W in [0,1] to N×H×W×C uint8."""
    return eight_bits(x).permute(0, 2, 3, 1)
