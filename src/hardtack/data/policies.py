"""RandAugment (Cubuk et al., 2020) and AutoAugment (Cubuk et al., 2019), per image, for whole batches.

The operations, their magnitudes and the policies are torchvision's (nearest neighbour, black outside); timm's
RandAugment (`rand-m9-mstd0.5-inc1`, see `timm_policy`) applies the same operations with other magnitudes. In
each slot every image has its own operation: the five geometric ones are one affine warp, the four that blend
(brightness, contrast, colour, sharpness) are one blend, the rest are computed for all and selected by masks.
Differences from torchvision on 8-bit images: results of the blends and autocontrast are not rounded to 8 bits
between operations, and random numbers come from the image's key.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.data import colour
from hardtack.data.geometry import affine_matrices, per_image, pillow_warp, warp

POLICIES = ("none", "randaugment", "autoaugment_cifar10", "autoaugment_imagenet")

OPERATIONS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert", "SolarizeAdd",
)  # fmt: skip
_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
_SIGNED = OPERATIONS[1:10]


def magnitude(name: str, level: int, bins: int) -> float:
    """torchvision's magnitude at `level` of `bins`; translations as shares of the side, solarize in [0,1]."""
    part = level / (bins - 1)
    if name in ("ShearX", "ShearY"):
        return 0.3 * part
    if name in ("TranslateX", "TranslateY"):
        return 150.0 / 331.0 * part
    if name == "Rotate":
        return 30.0 * part
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return 0.9 * part
    if name == "Posterize":
        return 8 - round(level / ((bins - 1) / 4))
    if name == "Solarize":
        return 1 - part
    return 0.0


def apply_operations(
    x: Tensor, operation: Tensor, size: Tensor, *, interpolation: str = "nearest", fill: Tensor | None = None
) -> Tensor:
    """Image i (of N×3×H×W) through OPERATIONS[operation[i]] with the signed magnitude size[i].

    Without `fill` images move as torchvision moves them: by whole pixels, black outside. With a colour (3) they move
    as Pillow moves them, which is what timm's RandAugment does.
    """

    def is_(name: str) -> Tensor:
        return operation == _NUMBER[name]

    def only(name: str) -> Tensor:
        return torch.where(is_(name), size, 0.0)

    height, width = x.shape[-2:]
    right, down = only("TranslateX") * width, only("TranslateY") * height
    if fill is None:
        right, down = torch.trunc(right), torch.trunc(down)
    matrix = affine_matrices(only("ShearX"), only("ShearY"), right, down, only("Rotate"), (height, width))
    moves = (operation >= _NUMBER["ShearX"]) & (operation <= _NUMBER["Rotate"])
    if fill is None:
        moved = warp(x, matrix, interpolation=interpolation)
    else:
        moved = pillow_warp(x, matrix, interpolation=interpolation, fill=fill)
    result = torch.where(per_image(moves), moved, x)

    blends = (operation >= _NUMBER["Brightness"]) & (operation <= _NUMBER["Sharpness"])
    other = colour.black(x)
    for name, reference in (
        ("Color", colour.colourless),
        ("Contrast", colour.flat_grey),
        ("Sharpness", colour.blurred),
    ):
        other = torch.where(per_image(is_(name)), reference(x), other)
    result = torch.where(per_image(blends), colour.blend(x, other, 1 + size), result)

    bits = torch.where(is_("Posterize"), size, 8.0).long()
    for name, changed in (
        ("Posterize", colour.posterize(x, bits)),
        ("Solarize", colour.solarize(x, size)),
        ("AutoContrast", colour.autocontrast(x)),
        ("Equalize", colour.equalize(x)),
        ("Invert", 1 - x),
        ("SolarizeAdd", colour.add_to_dark(x, size)),
    ):
        result = torch.where(per_image(is_(name)), changed, result)
    return result.clamp(0, 1)


def policy_table(policy: str, *, level: int, bins: int) -> Tensor:
    """P×S×4 float32: for each of P sub-policies and S slots (operation, probability, magnitude, signed)."""
    if policy == "randaugment":
        names = OPERATIONS[:14]  # without Invert, as in the paper
        rows = [[_row(name, 1.0, level, bins)] for name in names]
    else:
        rows = [[_row(name, p, at, 10) for name, p, at in pair] for pair in _sub_policies(policy)]
    return torch.tensor(rows, dtype=torch.float32)


def _row(name: str, probability: float, level: int | None, bins: int) -> tuple[float, ...]:
    return (_NUMBER[name], probability, magnitude(name, level or 0, bins), float(name in _SIGNED))


def _sub_policies(policy: str) -> list[tuple[tuple[str, float, int | None], ...]]:
    """The published sub-policies, from torchvision's own table."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy

    published = {
        "autoaugment_cifar10": AutoAugmentPolicy.CIFAR10,
        "autoaugment_imagenet": AutoAugmentPolicy.IMAGENET,
    }
    return AutoAugment(published[policy]).policies


class PolicyAugment(nn.Module):
    """Draws and applies a policy: (x N×3×H×W, keys N) → x. RandAugment draws anew for each of `slots`."""

    table: Tensor

    def __init__(self, policy: str, *, level: int, bins: int, slots: int, interpolation: str) -> None:
        super().__init__()
        self.random = policy == "randaugment"
        self.slots = slots if self.random else 2
        self.interpolation = interpolation
        self.register_buffer("table", policy_table(policy, level=level, bins=bins), persistent=False)

    def forward(self, x: Tensor, keys: Tensor, stream: int) -> Tensor:
        table = self.table.to(x.device)
        draws = randomness.uniform(keys, (self.slots, 3), stream)
        for slot in range(self.slots):
            which = (draws[:, slot if self.random else 0, 0] * len(table)).long()
            operation, probability, size, signed = table[which, 0 if self.random else slot].unbind(-1)
            size = torch.where((signed > 0) & (draws[:, slot, 1] < 0.5), -size, size)
            operation = torch.where(draws[:, slot, 2] < probability, operation, 0.0).long()
            x = apply_operations(x, operation, size, interpolation=self.interpolation)
        return x
