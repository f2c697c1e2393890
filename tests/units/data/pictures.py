"""Pictures to corrupt and perturb: smooth shapes, texture, and flat, saturated parts, as photographs have."""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor


def pictures(count: int, height: int = 32, width: int = 32, seed: int = 0) -> Tensor:
    """count×3×H×W in steps of 1/255."""
    rng = np.random.default_rng(seed)
    field = rng.normal(size=(count, 3, height, width))
    smooth = 5 * gaussian_filter(field, (0, 0, 3, 3)) + 0.4 * gaussian_filter(field, (0, 0, 1, 1)) + 0.05 * field
    levels = np.clip(0.5 + 0.5 * smooth, 0, 1) * 255
    return torch.from_numpy(levels.round()).float() / 255


def flat(level: int, count: int, height: int = 32, width: int = 32) -> Tensor:
    return torch.full((count, 3, height, width), level / 255)


def arrays(x: Tensor) -> np.ndarray:
    """N×H×W×3 uint8, as image files are read."""
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
