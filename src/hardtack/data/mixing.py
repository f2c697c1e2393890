"""Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019), drawn for each image or, as timm does, for a batch.

Each image by itself: image i is mixed with the image before it in the batch (the first with the last), so the partner,
unlike everything else here, depends on the batch; the share, the box and the choice depend on the key alone.

A group of images together (timm's mode `batch`): the share, the box and the choice are those of the key of the group's
first image, and image i is mixed with image i of the group in reverse order. A group is a function of (seed, epoch,
step), so its draws are too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness
from hardtack.data.erasing import box_mask
from hardtack.data.geometry import per_image

_CELLS = 4096


def beta_table(alpha: float) -> Tensor:
    """Quantiles of Beta(α, α) for u in [0, ½], as v = λ^α on a regular grid (4097 float32).

    In v the distribution function ∝ ∫(1 − v^{1/α})^{α−1} dv has no singularity on λ ≤ ½, so a plain sum and a
    linear interpolation are accurate for every α; the other half follows by symmetry. Sampling from a table
    needs one uniform number, no rejection and hence no data-dependent loop on the device.
    """
    v = torch.linspace(0, 0.5**alpha, 65537, dtype=torch.float64)
    density = (1 - v ** (1 / alpha)) ** (alpha - 1)
    mass = torch.cat([v.new_zeros(1), torch.cumulative_trapezoid(density, v)])
    mass = mass / mass[-1]
    target = torch.linspace(0, 1, _CELLS + 1, dtype=torch.float64)
    upper = torch.searchsorted(mass, target).clamp(1, len(mass) - 1)
    step = (mass[upper] - mass[upper - 1]).clamp(min=1e-300)
    return (v[upper - 1] + (v[upper] - v[upper - 1]) * (target - mass[upper - 1]) / step).float()


def beta(u: Tensor, table: Tensor, alpha: float) -> Tensor:
    """λ (N) distributed as Beta(α, α) from uniform `u` (N)."""
    place = torch.minimum(u, 1 - u) * (2 * _CELLS)
    cell = place.long().clamp(max=_CELLS - 1)
    v = torch.lerp(table[cell], table[cell + 1], place - cell)
    half = v ** (1 / alpha)
    return torch.where(u < 0.5, half, 1 - half).clamp(0, 1)


def soft_labels(y: Tensor, num_classes: int) -> Tensor:
    """N×C float32: one-hot of int64 labels; soft labels as they are."""
    return y.float() if y.is_floating_point() else F.one_hot(y, num_classes).float()


def group_keys(keys: Tensor, group: int | None) -> Tensor:
    """The keys to draw from (N): each image's own, or the first key of each `group` of consecutive images."""
    return keys if group is None else keys[::group].repeat_interleave(group, output_size=len(keys))


def partners(values: Tensor, group: int | None) -> Tensor:
    """For each of N images the values of the one it is mixed with: its neighbour, or its mirror image in the group."""
    if group is None:
        return values.roll(1, dims=0)
    return values.unflatten(0, (-1, group)).flip(1).flatten(0, 1)


def mix(
    x: Tensor, y: Tensor, keys: Tensor, *, num_classes: int, mixup: float, cutmix: float,
    tables: tuple[Tensor, Tensor], switch: float, probability: float, group: int | None = None, stream: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(x, N×C soft labels): mixup, cutmix, or one of the two (cutmix with probability `switch`).

    Drawn per image, or once for each `group` of consecutive images, which must divide N.
    """
    keys = group_keys(keys, group)
    size = (x.shape[-2], x.shape[-1])
    active = randomness.uniform(keys, (), stream) < probability
    cuts = randomness.uniform(keys, (), stream + 1) < (switch if mixup and cutmix else float(cutmix > 0))
    u = randomness.uniform(keys, (), stream + 2)
    share = torch.ones_like(u)
    mixed, partner = x, partners(x, group)
    if mixup:
        share = torch.where(cuts, share, beta(u, tables[0], mixup))
        weight = per_image(torch.where(active & ~cuts, share, 1.0))
        mixed = weight * x + (1 - weight) * partner
    if cutmix:
        side = torch.sqrt(1 - beta(u, tables[1], cutmix))
        tall, wide = (side * size[0]).long(), (side * size[1]).long()
        top = randomness.integers(keys, size[0], (), stream + 3) - tall // 2
        left = randomness.integers(keys, size[1], (), stream + 4) - wide // 2
        inside = box_mask(top, left, tall, wide, size) & per_image(active & cuts)
        mixed = torch.where(inside, partner, mixed)
        # the label's share is the area that was really pasted, as in the paper's code
        share = torch.where(cuts, 1 - inside.float().mean(dim=(1, 2, 3)), share)
    share = torch.where(active, share, 1.0)[:, None]
    labels = soft_labels(y, num_classes)
    return mixed, share * labels + (1 - share) * partners(labels, group)
