"""A perturbation as an image that can be looked at and classified."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.threats import Threat


def picture(delta: Tensor, threat: Threat) -> Tensor:
    """(δ + ε) / 2ε in eight bits (N×C×H×W, uint8): no change is mid-grey, the bound black or white.

    l2 and l1 bound no single value: there ε is the largest |δ| of each image.
    """
    if threat.norm == "linf":
        bound = torch.full_like(delta[:, :1, :1, :1], threat.radius)
    else:
        bound = delta.abs().amax(dim=(1, 2, 3), keepdim=True)
    share = torch.where(bound > 0, (delta + bound) / (2 * bound), 0.5)
    return eight_bits(share)


def eight_bits(x: Tensor) -> Tensor:
    """[0,1] as the nearest of 256 levels, as a file would hold it."""
    return (255 * x.clamp(0, 1)).round().to(torch.uint8)
