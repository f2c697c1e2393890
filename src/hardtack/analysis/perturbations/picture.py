"""A perturbation as an image that can be looked at and classified."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.analysis.perturbations.amplitude import bound
from hardtack.analysis.pictures import eight_bits
from hardtack.threats import Threat


def picture(delta: Tensor, threat: Threat) -> Tensor:
    """(δ + ε) / 2ε in eight bits (N×C×H×W, uint8): no change is mid-grey, the bound black or white.

    l2 and l1 bound no single value: there ε is the largest |δ| of each image.
    """
    most = bound(delta, threat)
    share = torch.where(most > 0, (delta + most) / (2 * most), 0.5)
    return eight_bits(share)
