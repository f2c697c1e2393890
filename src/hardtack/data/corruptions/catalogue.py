"""The types by name, and the one function that applies them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.errors import UserError, did_you_mean

NOISE = ("gaussian_noise", "shot_noise", "impulse_noise")
COMMON = (
    *NOISE, "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
    "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
SEVERITIES = (1, 2, 3, 4, 5)

Constants = Literal["cifar", "imagenet"]
"""Whose constants: the script's that made CIFAR-10-C, or those of ImageNet-C's 224-pixel images."""

Corruption = Callable[..., Tensor]
"""(x N×3×H×W in steps of 1/255, keys N, severity 1–5, constants) to what the published function returns, over 255.

The result is the caller's to change. Frost also takes `folder`."""

_KNOWN: dict[str, Corruption] = {}


def corruption(make: Corruption) -> Corruption:
    """Decorator: enter a function under its name."""
    _KNOWN[make.__name__] = make
    return make


def constants_for(side: int) -> Constants:
    """Whose constants suit images of so many pixels: CIFAR-C's were made for 32, ImageNet-C's for 224."""
    return "cifar" if side <= 64 else "imagenet"


def names() -> tuple[str, ...]:
    return COMMON + EXTRA


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

    `index` are the images' numbers in their data set: each has random numbers of its own. `frost` is the folder of
    frost's overlay photographs; without it they are drawn (`frost_source` names which).
    """
    if name not in names():
        hint = did_you_mean(name, names()) or f"; known: {', '.join(names())}"
        raise UserError(f"there is no corruption '{name}'{hint}")
    if severity not in SEVERITIES:
        raise UserError(f"a severity is 1, 2, 3, 4 or 5, found {severity}")
    keys = randomness.make_keys(index, seed, 1 + names().index(name), severity)
    options = {"folder": frost} if name == "frost" else {}
    made = _function(name)(as_bytes(x), keys, severity, constants, **options)
    return cut_off(made)


_SLACK = 2.0**-10  # a grey level that fp32 has just missed is that grey level


def as_bytes(x: Tensor) -> Tensor:
    """To the nearest 1/255: what an image file holds."""
    return (x * 255).round_().div_(255)


def cut_off(made: Tensor) -> Tensor:
    """Into [0,1] and down to whole grey levels, as the published scripts cut off what follows the point; in place."""
    # in place and part by part: fresh memory for every step would take longer than most corruptions
    for part in made.split(max(1, len(made)) if made.is_cuda else 64):
        part.clamp_(0, 1).mul_(255).add_(_SLACK).floor_().div_(255)
    return made


def _function(name: str) -> Corruption:
    if name not in _KNOWN:
        for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
            importlib.import_module(f"{__package__}.{module.name}")
    return _KNOWN[name]
