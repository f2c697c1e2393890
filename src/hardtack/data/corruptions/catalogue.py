"""The types by name, and the one function that applies them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from torch import Tensor

from hardtack import randomness
from hardtack.errors import UserError, did_you_mean

NOISE = ("gaussian_noise", "shot_noise", "impulse_noise")
COMMON = (
    *NOISE, "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
    "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
SEVERITIES = (1, 2, 3, 4, 5)

Constants = Literal["cifar", "imagenet"]
"""Whose constants: the script's that made CIFAR-10-C, or those of ImageNet-C's 224-pixel images."""

Corruption = Callable[[Tensor, Tensor, int, Constants], Tensor]
"""(x N×3×H×W in steps of 1/255, keys N, severity 1–5, constants) to what the published function returns, over 255."""

_KNOWN: dict[str, Corruption] = {}


def corruption(make: Corruption) -> Corruption:
    """Decorator: enter a function under its name."""
    _KNOWN[make.__name__] = make
    return make


def names() -> tuple[str, ...]:
    return COMMON + EXTRA


def corrupt(
    x: Tensor, index: Tensor, name: str, severity: int, *, constants: Constants = "cifar", seed: int = 0
) -> Tensor:
    """`x` N×3×H×W in [0,1] under one corruption, in steps of 1/255 as the published files are.

    `index` are the images' numbers in their data set: each has random numbers of its own.
    """
    if name not in names():
        hint = did_you_mean(name, names()) or f"; known: {', '.join(names())}"
        raise UserError(f"there is no corruption '{name}'{hint}")
    if severity not in SEVERITIES:
        raise UserError(f"a severity is 1, 2, 3, 4 or 5, found {severity}")
    keys = randomness.make_keys(index, seed, 1 + names().index(name), severity)
    made = _function(name)(as_bytes(x), keys, severity, constants)
    return (made.clamp(0, 1) * 255 + _SLACK).floor() / 255  # the published scripts cut off what follows the point


_SLACK = 2.0**-10  # a grey level that fp32 has just missed is that grey level


def as_bytes(x: Tensor) -> Tensor:
    """To the nearest 1/255: what an image file holds."""
    return (x * 255).round() / 255


def _function(name: str) -> Corruption:
    if name not in _KNOWN:
        for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
            importlib.import_module(f"{__package__}.{module.name}")
    return _KNOWN[name]
