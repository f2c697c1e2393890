"""How large a perturbation is, channel by channel."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.threats import Threat

BINS = 41  # bins of δ/ε from −1 to 1; an odd number, so that 0 is the centre of a bin
_ROUNDING = 1e-6  # rounding error of x + eps − x in fp32


def bound(delta: Tensor, threat: Threat) -> Tensor:
    """The unit of the values of delta (N×1×1×1): ε in linf; for l2 and l1 the largest |δ| of each image."""
    if threat.norm == "linf":
        return torch.full_like(delta[:, :1, :1, :1], threat.radius)
    return delta.abs().amax(dim=(1, 2, 3), keepdim=True)


def amplitude(delta: Tensor, threat: Threat) -> dict[str, Tensor]:
    """Statistics of delta (N×C×H×W).

    mean, largest   of |δ| in each channel, N×C
    l2              the l2 norm, N
    counts          values of each channel in each bin of δ/ε, N×C×bins
    at_bound        in linf, the share of values at ±ε, N×C; values that were clipped to [0,1] earlier do not count
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
    """Histograms, N×C×bins, of values N×C×H×W in [−1, 1]."""
    place = ((share + 1) / 2 * BINS).long().clamp(0, BINS - 1).flatten(2)
    counts = torch.zeros(*place.shape[:2], BINS, dtype=torch.int64, device=share.device)
    return counts.scatter_add_(2, place, torch.ones_like(place))
