"""Which official robustness files there are, and the facts each is known by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["official", "regenerated", "own"]
"""Who made the images: the benchmark's authors; hardtack, in their layout; or the user, with classes of their own."""

GROUPS = ("noise", "blur", "weather", "digital", "extra", "validation")
"""The archives that ImageNet-C and -P come in; some unpack into a folder of that name above the types."""

PERTURBATIONS = (
    "gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness", "translate", "rotate", "tilt",
    "scale",
)  # fmt: skip
EXTRA_PERTURBATIONS = (
    "speckle_noise", "gaussian_blur", "spatter", "shear",
    *(f"{noise}_noise_{level}" for noise in ("gaussian", "shot", "speckle") for level in (2, 3)),
)  # fmt: skip


@dataclass(frozen=True)
class OfficialSet:
    """`images`: in one type and severity (-C), videos of one type (-P), or in all; `side`: of every image."""

    title: str
    form: str
    get: str = ""
    images: int = 0
    side: int = 0


_C, _P, _SHIFT = "TYPE/SEVERITY", "TYPE", ""

KINDS = {
    "cifar10c": OfficialSet("CIFAR-10-C", _C, "https://zenodo.org/record/2535967", images=10_000, side=32),
    "cifar100c": OfficialSet("CIFAR-100-C", _C, "https://zenodo.org/record/3555552", images=10_000, side=32),
    "imagenet_c": OfficialSet("ImageNet-C", _C, "https://zenodo.org/record/2235448", images=50_000, side=224),
    "tiny_imagenet_c": OfficialSet("Tiny-ImageNet-C", _C, "https://zenodo.org/record/2536630", images=10_000, side=64),
    "corrupted": OfficialSet("corrupted images", _C),
    "cifar10p": OfficialSet("CIFAR-10-P", _P, "https://github.com/hendrycks/robustness", images=10_000, side=32),
    "cifar100p": OfficialSet("CIFAR-100-P", _P, "https://github.com/hendrycks/robustness", images=10_000, side=32),
    "imagenet_p": OfficialSet("ImageNet-P", _P, "https://zenodo.org/record/3565846", images=50_000, side=224),
    "tiny_imagenet_p": OfficialSet("Tiny-ImageNet-P", _P, "https://zenodo.org/record/2536630", images=10_000, side=64),
    "imagenet_a": OfficialSet("ImageNet-A", _SHIFT, "https://github.com/hendrycks/natural-adv-examples", images=7_500),
    "imagenet_r": OfficialSet("ImageNet-R", _SHIFT, "https://github.com/hendrycks/imagenet-r", images=30_000),
    "imagenet_v2": OfficialSet("ImageNet-V2", _SHIFT, "https://github.com/modestyachts/ImageNetV2", images=10_000),
    "imagenet_sketch": OfficialSet(
        "ImageNet-Sketch", _SHIFT, "https://github.com/HaohanWang/ImageNet-Sketch", images=50_889
    ),
}  # fmt: skip


def title(kind: str) -> str:
    return KINDS[kind].title


def of_how_many(count: int, kind: str) -> str:
    """`"10 of 10,000 images"` where some are missing, else `"10,000 images"`."""
    whole = KINDS[kind].images
    noun = "videos" if KINDS[kind].form == _P else "images"
    return f"{count:,} of {whole:,} {noun}" if whole and count != whole else f"{count:,} {noun}"
