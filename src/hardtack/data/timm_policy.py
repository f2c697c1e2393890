"""timm's RandAugment from timm's own words: `rand-m9-mstd0.5-inc1`.

    m9         magnitude, 10 is the most (the default)
    n2         operations per image
    p0.5       probability of each
    mstd0.5    normal noise of the magnitude, drawn per operation; above 100: uniform from 0 to the magnitude
    mmax10     where the noisy magnitude is cut off
    inc1       operations that get stronger with the magnitude (inc0, the default: posterize and solarize get weaker,
               and blends go from 0.1 to 1.9)

Fifteen operations, drawn with replacement, on one image after the other. Geometry is Pillow's: bicubic, `fill` outside
(timm takes the data set's mean colour, or 128 without one). Differences: images are not rounded to 8 bits between
operations, random numbers come from the image's key, timm's weighted choices (`t…`) are not known here, and an image
posterised to no bits is black (newer versions of Pillow refuse it, and timm then stops).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.policies import OPERATIONS, apply_operations

CHOICES = tuple(name for name in OPERATIONS if name != "Identity")
_NUMBERS = tuple(OPERATIONS.index(name) for name in CHOICES)
_BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")
_SIGNED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
_MOST = 10.0


@dataclass(frozen=True, kw_only=True)
class RandAugmentWords:
    """What a text such as `rand-m9-mstd0.5-inc1` says."""

    m: float = _MOST
    n: int = 2
    p: float = 0.5
    mstd: float = 0.0
    mmax: float = _MOST
    inc: bool = False

    @classmethod
    def read(cls, text: str) -> RandAugmentWords:
        first, *words = text.split("-")
        keys = ("m", "n", "p", "mstd", "mmax", "inc")
        values: dict[str, float] = {}
        for word in words:
            match = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?)", word)
            if first != "rand" or match is None or match[1] not in keys:
                near = did_you_mean(match[1] if match else word, keys)
                raise UserError(f"policy '{text}': '{word}' is none of m9, n2, p0.5, mstd0.5, mmax10, inc1{near}")
            values[match[1]] = float(match[2])
        read = cls(**{**values, "n": int(values.get("n", 2)), "inc": bool(values.get("inc", 0))})  # type: ignore[arg-type]
        if read.n < 1 or read.p > 1:
            raise UserError(f"policy '{text}': n must be at least 1 and p at most 1")
        return read


def sizes(operation: Tensor, level: Tensor, negative: Tensor, *, increasing: bool) -> Tensor:
    """What `apply_operations` wants for each image's operation at its level (N, 0 … 10) and sign (N bool)."""
    part = level / _MOST
    sign = torch.where(negative, -1.0, 1.0)
    blend = (sign * 0.9 * part).clamp(min=-0.9) if increasing else 1.8 * part - 0.9
    bits, threshold, added = (torch.trunc(most * part + 1e-4) for most in (4, 256, 110))  # float32 may fall just short
    table = {
        **dict.fromkeys(_BLENDS, blend),
        "ShearX": 0.3 * part * sign,
        "ShearY": 0.3 * part * sign,
        "TranslateX": -0.45 * part * sign,  # timm moves the window, not the image
        "TranslateY": -0.45 * part * sign,
        "Rotate": 30 * part * sign,
        "Posterize": (4 - bits if increasing else bits).clamp(0, 8),
        "Solarize": (256 - threshold if increasing else threshold).clamp(0, 256) / 255,
        "SolarizeAdd": added.clamp(max=128) / 255,
    }
    size = torch.zeros_like(part)
    for name, value in table.items():
        size = torch.where(operation == OPERATIONS.index(name), value, size)
    return size


class TimmRandAugment(nn.Module):
    """(x N×3×H×W, keys N) → x, as the words say."""

    operations: Tensor
    fill: Tensor

    def __init__(self, text: str, *, interpolation: str, fill: tuple[float, float, float]) -> None:
        super().__init__()
        self.words, self.interpolation = RandAugmentWords.read(text), interpolation
        self.register_buffer("operations", torch.tensor(_NUMBERS), persistent=False)
        self.register_buffer("fill", torch.tensor(fill), persistent=False)

    def forward(self, x: Tensor, keys: Tensor, stream: int) -> Tensor:
        words, operations, fill = self.words, self.operations.to(x.device), self.fill.to(x.device)
        draws = randomness.uniform(keys, (words.n, 4), stream)
        noise = randomness.normal(keys, (words.n,), stream + 1)
        for slot in range(words.n):
            which, sign, applied, share = draws[:, slot].unbind(-1)
            level = words.m * share if words.mstd > 100 else words.m + words.mstd * noise[:, slot]
            operation = operations[(which * len(operations)).long()]
            size = sizes(operation, level.clamp(0, words.mmax), sign < 0.5, increasing=words.inc)
            operation = torch.where(applied < words.p, operation, 0)
            x = apply_operations(x, operation, size, interpolation=self.interpolation, fill=fill)
        return x
