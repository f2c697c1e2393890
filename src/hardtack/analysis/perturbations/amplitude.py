"""How large a perturbation is, channel by channel."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.threats import Threat

BINS = 41  # of δ/ε from −1 to 1; odd, so that no change has a bin of its own
_ROUNDING = 1e-6  # x + eps − x in fp32


def bound(delta: Tensor, threat: Threat) -> Tensor:
    """What a value of delta is measured by (N×1×1×1): ε in linf; l2 and l1 bound no single value, so there its peak."""
    if threat.norm == "linf":
        return torch.full_like(delta[:, :1, :1, :1], threat.radius)
    return delta.abs().amax(dim=(1, 2, 3), keepdim=True)


def amplitude(delta: Tensor, threat: Threat) -> dict[str, Tensor]:
    """Of delta (N×C×H×W): mean and largest |δ| of each channel (N×C), its l2 size (N), how many values of each channel
    lie in each of the bins of δ/ε (N×C×bins), and in linf the share that lies at the bound (N×C).

    Values that black or white stopped short are not at the bound.
    """
    size = delta.abs()
    measured = {
        "mean": size.mean(dim=(2, 3)),
        "largest": size.amax(dim=(2, 3)),
        "l2": size.square().sum((1, 2, 3)).sqrt(),
    }
    measured["counts"] = _counts(delta / bound(delta, threat).clamp_min(1e-30))
    if threat.norm == "linf":
        measured["at_bound"] = (size >= threat.radius - _ROUNDING).float().mean(dim=(2, 3))
    return measured


def _counts(share: Tensor) -> Tensor:
    """N×C×bins of N×C×H×W in [−1, 1]."""
    place = ((share + 1) / 2 * BINS).long().clamp(0, BINS - 1).flatten(2)
    counts = torch.zeros(*place.shape[:2], BINS, dtype=torch.int64, device=share.device)
    return counts.scatter_add_(2, place, torch.ones_like(place))
