"""The types by name, how long each sequence is, and the one function that makes them."""

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

_MAKERS: dict[str, Maker] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "spatter": weather.spatter,
    "brightness": weather.brightness,
    "translate": placement.translate,
    "rotate": placement.rotate,
    "tilt": tilt.tilt,
    "scale": placement.scale,
}

PERTURBATIONS: dict[Constants, tuple[str, ...]] = {
    "cifar": tuple(name for name in _MAKERS if name != "snow"),
    "imagenet": tuple(name for name in _MAKERS if name != "spatter"),
}
"""The ten types that each benchmark's score is made of, in its order."""

_USUAL_FRAMES = 31
_FRAMES: dict[tuple[str, Constants], int] = {
    ("motion_blur", "cifar"): 21, ("translate", "cifar"): 16, ("translate", "imagenet"): 41,
}  # fmt: skip
_FIRST_WORD = 1001  # keys of their own: no sequence shares its random numbers with a corruption


def frame_count(name: str, constants: Constants = "cifar") -> int:
    """How many frames a sequence has, the first one included."""
    return _FRAMES.get((name, constants), _USUAL_FRAMES)


def against(name: str) -> Literal["first", "previous"]:
    """Which frame a frame is compared with: noises are new in every frame, the other types go on from the last."""
    return "first" if "noise" in name else "previous"


def sequence(x: Tensor, index: Tensor, name: str, *, constants: Constants = "cifar", seed: int = 0) -> Iterator[Tensor]:
    """The frames of `x` (N×3×H×W in [0,1]) one after the other, each N×3×H×W in steps of 1/255, to be left as they are.

    `index` are the images' numbers in their data set: each has random numbers of its own.
    """
    known = PERTURBATIONS[constants]
    if name not in known:
        hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
        raise UserError(f"there is no perturbation '{name}' with {constants}'s constants{hint}")
    keys = randomness.make_keys(index, seed, _FIRST_WORD + list(_MAKERS).index(name))
    return _MAKERS[name](as_bytes(x.detach()), keys, constants, frame_count(name, constants))
