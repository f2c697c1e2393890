"""A perturbation as an image that can be displayed and classified."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.analysis.perturbations.amplitude import bound
from hardtack.analysis.pictures import eight_bits
from hardtack.threats import Threat


def picture(delta: Tensor, threat: Threat) -> Tensor:
    """(δ + ε) / 2ε in eight bits (N×C×H×W, uint8): 0 is mid-grey, −ε is black and +ε is white.

    For l2 and l1, which do not bound single values, ε is the largest |δ| of each image.
    """
    most = bound(delta, threat)
    share = torch.where(most > 0, (delta + most) / (2 * most), 0.5)
    return eight_bits(share)
