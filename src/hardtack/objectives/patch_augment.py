"""RVT's patch-wise augmentation: every patch of an image is cropped, made noisy and mirrored independently.

Mao et al., "Towards robust vision transformer", 2022. In the published code the loss of the augmented images is
overwritten before it is used; here it has the same weight as that of the original images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data.geometry import flip, per_image, resized_crop

CHANCE = 0.1  # of each of the three
SMALLEST_AREA = 0.85
NOISE = 0.01


def augment_patches(x: Tensor, keys: Tensor, *, patch_size: int) -> Tensor:
    """x N×3×H×W in [0,1], keys N, to the same shape; the change of a patch depends on the key of its image.

    The crop is not rounded to whole pixels: in a patch of 4 pixels it would nearly always be the whole patch.
    """
    n, channels, height, width = x.shape
    if height % patch_size or width % patch_size:
        raise UserError(f"images of {height}×{width} cannot be divided into patches of {patch_size}")
    rows, columns = height // patch_size, width // patch_size
    cut = x.reshape(n, channels, rows, patch_size, columns, patch_size).permute(0, 2, 4, 1, 3, 5)
    number = torch.arange(rows * columns, device=x.device)
    changed = _changed(cut.flatten(0, 2), randomness.fold(keys[:, None], number).flatten())
    laid = changed.reshape(n, rows, columns, channels, patch_size, patch_size).permute(0, 3, 1, 4, 2, 5)
    return laid.reshape(x.shape)


def _changed(patches: Tensor, keys: Tensor) -> Tensor:
    """M×3×size×size, each changed by its own key."""
    size = patches.shape[-1]
    cropped, noisy, mirrored, area, top, left = randomness.uniform(keys, (6,)).unbind(1)
    side = size * torch.sqrt(SMALLEST_AREA + (1 - SMALLEST_AREA) * area)
    crop = resized_crop(patches, top * (size - side), left * (size - side), side, side)
    patches = torch.where(per_image(cropped < CHANCE), crop, patches)
    noise = NOISE * randomness.normal(keys, tuple(patches.shape[1:]), stream=1)
    patches = torch.where(per_image(noisy < CHANCE), (patches + noise).clamp(0, 1), patches)
    return flip(patches, mirrored < CHANCE)
