"""How large a perturbation is, channel by channel."""

from __future__ import annotations

from torch import Tensor

from hardtack.threats import Threat

_ROUNDING = 1e-6  # x + eps − x in fp32


def amplitude(delta: Tensor, threat: Threat) -> dict[str, Tensor]:
    """Of delta (N×C×H×W): mean and largest |δ| of each channel (N×C), its l2 size (N), and where there is a bound on
    each value (linf) the share of values that lie at it (N×C). Values stopped short by black or white do not."""
    size = delta.abs()
    found = {"mean": size.mean(dim=(2, 3)), "largest": size.amax(dim=(2, 3)), "l2": size.square().sum((1, 2, 3)).sqrt()}
    if threat.norm == "linf":
        found["at_bound"] = (size >= threat.radius - _ROUNDING).float().mean(dim=(2, 3))
    return found
