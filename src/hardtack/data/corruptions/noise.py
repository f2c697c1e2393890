"""The noises: every value of an image is changed on its own, whatever its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from hardtack.base import randomness
from hardtack.base.registry import corruptions
from hardtack.data.corruptions import levels
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.parts import in_parts

# by severity: standard deviation, photons at full brightness, share of values replaced, standard deviation over value
_GAUSSIAN: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.04, 0.06, 0.08, 0.09, 0.10),
    "imagenet": (0.08, 0.12, 0.18, 0.26, 0.38),
}
_SHOT: dict[Constants, tuple[int, ...]] = {"cifar": (500, 250, 100, 75, 50), "imagenet": (60, 25, 12, 5, 3)}
_IMPULSE: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.01, 0.02, 0.03, 0.05, 0.07),
    "imagenet": (0.03, 0.06, 0.09, 0.17, 0.27),
}
_SPECKLE: dict[Constants, tuple[float, ...]] = {
    "cifar": (0.06, 0.10, 0.12, 0.16, 0.20),
    "imagenet": (0.15, 0.20, 0.35, 0.45, 0.60),
}


@corruptions.register("gaussian_noise", stream=1, help="normal noise added to every value")
def gaussian_noise(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Add normal noise to every value.

    The published function, with standard normal numbers from 24-bit uniform ones, cut off at 5.9 (which one value in
    three hundred million exceeds).
    """
    sigma = _GAUSSIAN[constants][severity - 1]
    return in_parts(lambda x, keys: x + sigma * randomness.normal(keys, x.shape[1:]), x, keys)


@corruptions.register("shot_noise", stream=2, help="Poisson noise, as from counting photons")
def shot_noise(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Count photons: every value becomes a Poisson number whose mean is proportional to it.

    Exactly the published distribution, the cut to 8 bits included: an image has 256 grey levels, so the distribution
    of the grey level that each of them turns into is tabulated, and drawn from. (Probabilities to within 2⁻²⁸.)
    """
    photons = _SHOT[constants][severity - 1]
    table = levels.shot_table(photons, str(x.device))
    return in_parts(lambda x, keys: levels.sample(table, x, randomness.bits(keys, x.shape[1:])), x, keys)


@corruptions.register("impulse_noise", stream=3, help="salt and pepper: some values become 0 or 1")
def impulse_noise(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Salt and pepper: a share of the values becomes 0 or 1, with equal chances.

    The published function, which is scikit-image's `random_noise(mode="s&p")` (as it has been since release 0.13):
    values are struck independently, so a pixel seldom loses all three of its channels.
    """
    share = _IMPULSE[constants][severity - 1]

    def strike(x: Tensor, keys: Tensor) -> Tensor:
        uniform = randomness.uniform(keys, x.shape[1:])
        # the lower half of the struck values is salt: one number decides whether, and which
        return torch.where(uniform < share, (uniform < share / 2).to(x.dtype), x)

    return in_parts(strike, x, keys)


@corruptions.register("speckle_noise", stream=16, help="normal noise in proportion to every value")
def speckle_noise(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Add normal noise to every value, in proportion to it.

    The published function, with normal numbers as in `gaussian_noise`.
    """
    sigma = _SPECKLE[constants][severity - 1]
    return in_parts(lambda x, keys: x + x * (sigma * randomness.normal(keys, x.shape[1:])), x, keys)
