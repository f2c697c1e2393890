"""The noises: a clean first frame, then the published distributions, new in every frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import flat, pictures
from scipy.stats import norm, poisson

from hardtack.data.perturbations import sequence

INDEX = torch.arange(16)
SIGMA = {"cifar": 0.02, "imagenet": 0.03}
PHOTONS = {"cifar": 700, "imagenet": 300}


def levels(name, constants, level):
    """Grey levels of all noisy frames of flat images, frames first."""
    frames = list(sequence(flat(level, 16), INDEX, name, constants=constants))
    assert torch.equal(frames[0], flat(level, 16))
    return (torch.stack(frames[1:]) * 255).round().numpy()


def moments(chances):
    """Mean and deviation of the grey level a value is stored as."""
    level = np.arange(256)
    mean = (chances * level).sum()
    return mean, np.sqrt((chances * (level - mean) ** 2).sum())


def gaussian_chances(level, sigma):
    edges = norm.cdf((np.arange(1, 256) - level) / (255 * sigma))
    return np.diff(np.concatenate([[0], edges, [1]]))  # cut off below, all of the tails at 0 and 255


def shot_chances(level, photons):
    counts = np.arange(4 * photons)
    stored = np.uint8(255 * np.clip(counts / photons, 0, 1))
    return np.bincount(stored, poisson.pmf(counts, level / 255 * photons), minlength=256)


@pytest.mark.parametrize("level", [2, 100, 250])
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_published_distributions(constants, level):
    for name, chances in (
        ("gaussian_noise", gaussian_chances(level, SIGMA[constants])),
        ("shot_noise", shot_chances(level, PHOTONS[constants])),
    ):
        made, (mean, deviation) = levels(name, constants, level), moments(chances)
        error = deviation / np.sqrt(made.size)
        assert abs(made.mean() - mean) < 5 * error, name
        assert made.std() == pytest.approx(deviation, rel=0.01), name


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise"])
def test_every_frame_has_noise_of_its_own(name):
    first, second, third = list(sequence(pictures(4), torch.arange(4), name))[:3]
    one, other = (second - first).flatten(), (third - first).flatten()
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.05
