"""The corruption types by name, and the one function that applies them.

A corruption is a function in one file, registered with the registry `corruptions`; a file of the user's registers one
in the same way (`--import FILE.py`):

    @corruptions.register("grey", help="colours fade")
    def grey(x, keys, severity, constants):
        return x + (x.mean(dim=1, keepdim=True) - x) * severity / 5

`x` are images N×3×H×W in steps of 1/255, `keys` one key per image for `hardtack.base.randomness`, `severity` is 1 to 5
and `constants` is `"cifar"` or `"imagenet"`. The function returns images of the same shape, in a tensor that may be
changed; values are then clamped to [0,1] and cut down to whole grey levels. Frost also takes `folder`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.base.registry import Entry, corruptions

# The published types in the published order. A type that is added later belongs to none of these groups.
NOISE = ("gaussian_noise", "shot_noise", "impulse_noise")
COMMON = (
    *NOISE, "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
    "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
GROUPS: dict[str, tuple[str, ...]] = {"common": COMMON, "extra": EXTRA, "all": COMMON + EXTRA, "noise": NOISE}
SEVERITIES = (1, 2, 3, 4, 5)

Constants = Literal["cifar", "imagenet"]
"""Whose constants: those of the script that made CIFAR-10-C, or those of ImageNet-C for images of 224 pixels."""

Corruption = Callable[..., Tensor]


def constants_for(side: int) -> Constants:
    """The constants that suit images of this side length: CIFAR-C's were made for 32 pixels, ImageNet-C's for 224."""
    return "cifar" if side <= 64 else "imagenet"


def names() -> tuple[str, ...]:
    """Every registered type: the published ones in the published order, then all others by name."""
    return (*COMMON, *EXTRA, *(name for name in corruptions.names() if name not in COMMON + EXTRA))


def stream_of(entry: Entry) -> int:
    """The number that separates the random numbers of this type from those of all others.

    The published types state theirs (`stream=`). That of any other type is a hash of its name, so that an added type
    changes no image of another.
    """
    if "stream" in entry.presets:
        return int(entry.presets["stream"])
    return (1 << 32) + int.from_bytes(hashlib.sha256(entry.name.encode()).digest()[:6])


@torch.no_grad()
def corrupt(
    x: Tensor,
    index: Tensor,
    name: str,
    severity: int,
    *,
    constants: Constants = "cifar",
    seed: int = 0,
    frost: Path | None = None,
) -> Tensor:
    """`x` N×3×H×W in [0,1] under one corruption, in steps of 1/255 as the published files are.

    `index` are the positions of the images in their data set: each image has its own random numbers. `frost` is the
    folder of frost's overlay photographs; without it they are drawn (`frost_source` names which are used).
    """
    entry = corruptions.get(name)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1, 2, 3, 4 or 5, found {severity}")
    keys = randomness.make_keys(index, seed, stream_of(entry), severity)
    options = {"folder": frost} if name == "frost" else {}
    corrupted = entry.make(as_bytes(x), keys, severity, constants, **options)
    if not isinstance(corrupted, Tensor) or corrupted.shape != x.shape:
        size = tuple(corrupted.shape) if isinstance(corrupted, Tensor) else type(corrupted).__name__
        raise UserError(f"corruption '{name}' must return images of shape {tuple(x.shape)}, found {size}")
    return cut_off(corrupted)


_SLACK = 2.0**-10  # rounding in fp32 may leave a value just below its grey level


def as_bytes(x: Tensor) -> Tensor:
    """Rounded to the nearest 1/255: what an image file holds."""
    return (x * 255).round_().div_(255)


def cut_off(images: Tensor) -> Tensor:
    """Clamped to [0,1] and rounded down to whole grey levels, as the published scripts do; in place."""
    # in place and part by part: fresh memory for every step would take longer than most corruptions
    for part in images.split(max(1, len(images)) if images.is_cuda else 64):
        part.clamp_(0, 1).mul_(255).add_(_SLACK).floor_().div_(255)
    return images
