"""The spatial frequencies of an image: the power of its Fourier transform, averaged over rings.

Frequencies are in cycles per pixel. Frequency 0, the mean of the image, is left out; 0.5 is the highest frequency along
an axis. No window function is applied: images are treated as periodic, so that a difference between opposite borders
counts as an edge.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rings(height: int, width: int) -> Tensor:
    """The centre of each ring in cycles per pixel; one ring for each integer number of cycles over the shorter side."""
    side = min(height, width)
    return torch.arange(1, side // 2 + 1, dtype=torch.float64) / side


def radial_power(x: Tensor) -> Tensor:
    """N×rings: mean power in each ring divided by the mean power of all frequencies. White noise has 1 in every ring.

    The powers of the channels of x (N×C×H×W) are added. A constant image has zeros.
    """
    power, radius = _power(x)
    middle = rings(*x.shape[-2:]).to(x.device)
    place = (
        torch.round(radius / middle[0]).long().clamp_max(len(middle) + 1)
    )  # frequencies above 0.5, in the corners, belong to no ring
    sums = torch.zeros(len(x), len(middle) + 2, dtype=power.dtype, device=x.device)
    sums.index_add_(1, place.flatten(), power.flatten(1))
    counts = torch.bincount(place.flatten(), minlength=len(middle) + 2)
    mean = power.flatten(1).sum(dim=1, keepdim=True) / (power[0].numel() - 1)
    return torch.where(mean > 0, sums / counts.clamp_min(1) / mean, 0.0)[:, 1:-1].float()


def mean_frequency(x: Tensor) -> Tensor:
    """N: the mean frequency in cycles per pixel, weighted by power; 0.383 for white noise."""
    power, radius = _power(x)
    total = power.flatten(1).sum(dim=1)
    return torch.where(total > 0, (power * radius).flatten(1).sum(dim=1) / total, 0.0).float()


def _power(x: Tensor) -> tuple[Tensor, Tensor]:
    """The power of each frequency (N×H×W, zero at frequency 0), and the magnitude of each frequency (H×W)."""
    power = torch.fft.fft2(x.double()).abs().square().sum(dim=1)
    power[:, 0, 0] = 0
    rows, columns = (torch.fft.fftfreq(size, dtype=torch.float64, device=x.device) for size in x.shape[-2:])
    return power, torch.hypot(rows[:, None], columns[None, :])
