"""The noises: the image as it is, then again and again with new noise."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from hardtack.base import randomness
from hardtack.data.corruptions import Constants, levels
from hardtack.data.corruptions.catalogue import cut_off
from hardtack.data.corruptions.parts import in_parts

_DEVIATION: dict[Constants, float] = {"cifar": 0.02, "imagenet": 0.03}
_PHOTONS: dict[Constants, int] = {"cifar": 700, "imagenet": 300}


def gaussian_noise(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """The image, then the image with normal noise added to every value, new in every frame.

    The published steps, with standard normal numbers from 24-bit uniform ones, cut off at 5.9.
    """
    sigma = _DEVIATION[constants]
    yield x
    for number in range(1, frames):
        of_frame = randomness.fold(keys, number)
        yield cut_off(in_parts(lambda x, keys: x + sigma * randomness.normal(keys, x.shape[1:]), x, of_frame))


def shot_noise(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """The image, then photon counts: every value a Poisson number whose mean is proportional to it.

    Exactly the published distribution, the cut to 8 bits included, drawn from a table (see the corruption).
    """
    table = levels.shot_table(_PHOTONS[constants], str(x.device))
    yield x
    for number in range(1, frames):
        of_frame = randomness.fold(keys, number)
        yield in_parts(lambda x, keys: levels.sample(table, x, randomness.bits(keys, x.shape[1:])), x, of_frame)
