"""The perturbation types by name, the length of each sequence, and the one function that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from torch import Tensor

from hardtack.base import randomness
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.catalogue import as_bytes
from hardtack.data.perturbations import blur, noise, placement, tilt, weather

Maker = Callable[[Tensor, Tensor, Constants, int], Iterator[Tensor]]
"""(x N×3×H×W in steps of 1/255, keys N, constants, number of frames) to the frames, in steps of 1/255."""

# Name: maker of the frames, and the number that separates the random numbers of this type from those of all others (and
# of every corruption). The numbers are fixed: a type that is added takes a new one, so that no other sequence changes.
_MAKERS: dict[str, tuple[Maker, int]] = {
    "gaussian_noise": (noise.gaussian_noise, 1001),
    "shot_noise": (noise.shot_noise, 1002),
    "motion_blur": (blur.motion_blur, 1003),
    "zoom_blur": (blur.zoom_blur, 1004),
    "snow": (weather.snow, 1005),
    "spatter": (weather.spatter, 1006),
    "brightness": (weather.brightness, 1007),
    "translate": (placement.translate, 1008),
    "rotate": (placement.rotate, 1009),
    "tilt": (tilt.tilt, 1010),
    "scale": (placement.scale, 1011),
}

PERTURBATIONS: dict[Constants, tuple[str, ...]] = {
    "cifar": tuple(name for name in _MAKERS if name != "snow"),
    "imagenet": tuple(name for name in _MAKERS if name != "spatter"),
}
"""The ten types that the score of each benchmark is made of, in the published order."""

_USUAL_FRAMES = 31
_FRAMES: dict[tuple[str, Constants], int] = {
    ("motion_blur", "cifar"): 21, ("translate", "cifar"): 16, ("translate", "imagenet"): 41,
}  # fmt: skip


def frame_count(name: str, constants: Constants = "cifar") -> int:
    """The number of frames of a sequence, the first one included."""
    return _FRAMES.get((name, constants), _USUAL_FRAMES)


def against(name: str) -> Literal["first", "previous"]:
    """The frame that each frame is compared with: noise is new in every frame, other types change step by step."""
    return "first" if "noise" in name else "previous"


def sequence(x: Tensor, index: Tensor, name: str, *, constants: Constants = "cifar", seed: int = 0) -> Iterator[Tensor]:
    """The frames of `x` (N×3×H×W in [0,1]), one after the other, each N×3×H×W in steps of 1/255. Do not change them.

    `index` are the positions of the images in their data set: each image has its own random numbers.
    """
    types = PERTURBATIONS[constants]
    if name not in types:
        hint = did_you_mean(name, types) or f"; perturbations: {', '.join(types)}"
        raise UserError(f"there is no perturbation '{name}' with the constants of {constants}{hint}")
    make, stream = _MAKERS[name]
    keys = randomness.make_keys(index, seed, stream)
    return make(as_bytes(x.detach()), keys, constants, frame_count(name, constants))
