"""The noises: the published distributions with the published constants."""

from __future__ import annotations

import math

import pytest
import torch
from pictures import flat
from scipy import stats

from hardtack.base import randomness
from hardtack.data.corruptions import corrupt, levels, noise

PUBLISHED = {
    "gaussian_noise": {"cifar": [0.04, 0.06, 0.08, 0.09, 0.10], "imagenet": [0.08, 0.12, 0.18, 0.26, 0.38]},
    "shot_noise": {"cifar": [500, 250, 100, 75, 50], "imagenet": [60, 25, 12, 5, 3]},
    "impulse_noise": {"cifar": [0.01, 0.02, 0.03, 0.05, 0.07], "imagenet": [0.03, 0.06, 0.09, 0.17, 0.27]},
    "speckle_noise": {"cifar": [0.06, 0.1, 0.12, 0.16, 0.2], "imagenet": [0.15, 0.2, 0.35, 0.45, 0.6]},
}
CASES = [(constants, severity) for constants in ("cifar", "imagenet") for severity in range(1, 6)]
COUNT = 60  # images of 3,072 values: a standard deviation is known to 0.16 %


def published(name: str, constants: str, severity: int) -> float:
    return PUBLISHED[name][constants][severity - 1]


def keys(name: str) -> torch.Tensor:
    return randomness.make_keys(torch.arange(COUNT), sum(name.encode()))


@pytest.mark.parametrize(("constants", "severity"), CASES)
def test_gaussian_noise_is_normal(constants, severity):
    x = flat(100, COUNT)
    z = (noise.gaussian_noise(x, keys("gaussian"), severity, constants) - x).double().flatten()
    z /= published("gaussian_noise", constants, severity)
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.008
    assert abs((z.abs() > 2).double().mean() - 0.0455) < 0.0025


@pytest.mark.parametrize(("constants", "severity"), CASES)
def test_speckle_noise_is_proportional(constants, severity):
    sigma = published("speckle_noise", constants, severity)
    for level in (40, 200):
        x = flat(level, COUNT)
        z = (noise.speckle_noise(x, keys("speckle"), severity, constants) - x).double() / (level / 255)
        assert abs(z.mean()) < 0.01 * sigma
        assert abs(z.std() / sigma - 1) < 0.008
    black = flat(0, 2)
    assert torch.equal(noise.speckle_noise(black, keys("speckle")[:2], severity, constants), black)


@pytest.mark.parametrize(("constants", "severity"), CASES)
def test_impulse_noise_strikes_values_not_pixels(constants, severity):
    share, x = published("impulse_noise", constants, severity), flat(100, COUNT)
    made = noise.impulse_noise(x, keys("impulse"), severity, constants)
    struck = made != x
    count = struck.numel()
    assert abs(struck.double().mean() - share) < 4 * math.sqrt(share / count)
    assert abs(made[struck].double().mean() - 0.5) < 4 * math.sqrt(0.25 / (share * count))
    assert set(made.unique().tolist()) == {0.0, x[0, 0, 0, 0].item(), 1.0}
    whole = struck.all(dim=1).double().mean()  # all three channels of a pixel
    assert abs(whole - share**3) < 4 * math.sqrt(share**3 / (count / 3)) + 1e-9


@pytest.mark.parametrize("photons", [500, 75, 60, 3])
def test_shot_noise_table_holds_the_poisson_distribution(photons):
    chances = levels.shot_probabilities(photons)
    assert torch.allclose(chances.sum(dim=1), torch.ones(256, dtype=torch.float64))
    for level in (0, 1, 77, 254, 255):
        expected = torch.zeros(256, dtype=torch.float64)
        for count in range(2 * photons + 50):
            stored = int(min(count / photons, 1) * 255)
            expected[stored] += stats.poisson.pmf(count, level / 255 * photons)
        assert torch.allclose(chances[level], expected, atol=1e-11)
    # each of 256 equally likely columns keeps its own outcome with the chance it names, or takes the other one
    table = levels.alias_table(chances.clone()).long().view(256, 256)
    keep = (table >> 8).double() / 2**23
    implied = keep.scatter_add(1, table & 255, 1 - keep) / 256
    assert (implied - chances).abs().max() < 2.0**-28


@pytest.mark.parametrize(("constants", "severity"), CASES)
def test_shot_noise_counts_photons(constants, severity):
    photons = published("shot_noise", constants, severity)
    x = flat(60, COUNT)
    made = noise.shot_noise(x, keys("shot"), severity, constants).flatten().double() * 255
    seen = torch.bincount(made.round().long(), minlength=256).double()
    expected = torch.zeros(256, dtype=torch.float64)
    for count in range(2 * photons + 50):
        expected[int(min(count / photons, 1) * 255)] += stats.poisson.pmf(count, 60 / 255 * photons) * seen.sum()
    often = expected > 20
    statistic = ((seen - expected)[often] ** 2 / expected[often]).sum()
    assert statistic < stats.chi2.ppf(1 - 1e-5, int(often.sum()))
    assert seen[expected == 0].sum() == 0
    assert torch.equal(corrupt(flat(0, 2), torch.arange(2), "shot_noise", severity), flat(0, 2))


@pytest.mark.parametrize("name", PUBLISHED)
def test_values_and_images_are_independent(name):
    x = flat(128, COUNT, 16, 16)
    made = getattr(noise, name)(x, keys(name), 5, "imagenet")
    z = made.flatten(1).double()
    z = (z - z.mean()) / z.std()
    for first, second in ((z[:, 1:], z[:, :-1]), (z[1:], z[:-1]), (z[:, 256:], z[:, :-256])):
        assert abs((first * second).mean()) < 4 / math.sqrt(first.numel())
