"""What holds for every noise and every blur, in both sets of constants."""

from __future__ import annotations

import pytest
import torch
from pictures import pictures

from hardtack.data.corruptions import corrupt

NAMES = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "gaussian_blur",
)  # fmt: skip
# the published constants let these change an image no more than the severity before: glass blur trades the shuffle for
# smoothing, and motion blur's radius grows from 6 to 8 where the weights have long faded
NOT_STRONGER = {("motion_blur", "cifar", 4)} | {
    ("glass_blur", c, s) for c in ("cifar", "imagenet") for s in (2, 3, 4, 5)
}


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", NAMES)
def test_severities_grow_and_stay_in_range(name, constants):
    x, index, changes = pictures(24, 40, 40), torch.arange(24), [0.0]
    for severity in range(1, 6):
        made = corrupt(x, index, name, severity, constants=constants)
        assert made.isfinite().all() and made.min() >= 0 and made.max() <= 1
        assert torch.equal(made * 255, (made * 255).round())
        changes.append((made - x).square().mean().item())
        assert changes[-1] > changes[-2] or (name, constants, severity) in NOT_STRONGER
    assert changes[5] > changes[1]


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_corrupted_alike_in_every_batch(name):
    x, index = pictures(130), torch.arange(130) * 7
    for constants, severity in (("cifar", 3), ("imagenet", 5)):
        whole = corrupt(x, index, name, severity, constants=constants)
        order = torch.randperm(130, generator=torch.Generator().manual_seed(0))
        assert torch.equal(corrupt(x[order], index[order], name, severity, constants=constants), whole[order])
        few = [128, 3, 77]
        assert torch.equal(corrupt(x[few], index[few], name, severity, constants=constants), whole[few])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("defocus_blur", "zoom_blur", "gaussian_blur")])
def test_random_numbers_follow_index_seed_and_severity(name):
    x = pictures(1).expand(2, -1, -1, -1)
    first, second = corrupt(x, torch.tensor([0, 1]), name, 5)
    assert not torch.equal(first, second)
    assert not torch.equal(corrupt(x[:1], torch.tensor([0]), name, 5, seed=1)[0], first)
    assert torch.equal(corrupt(x[:1], torch.tensor([0]), name, 5)[0], first)


@pytest.mark.parametrize("size", [(17, 31), (5, 60), (3, 2), (1, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_any_size(name, size):
    x = pictures(3, *size)
    for constants in ("cifar", "imagenet"):
        made = corrupt(x, torch.arange(3), name, 5, constants=constants)
        assert made.shape == x.shape and made.isfinite().all()
    assert corrupt(x[:0], torch.arange(0), name, 5).shape == (0, 3, *size)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_agrees(name, constants):
    x, index = pictures(40, 33, 47), torch.arange(40)
    for severity in range(1, 6):
        here = corrupt(x, index, name, severity, constants=constants)
        there = corrupt(x.cuda(), index.cuda(), name, severity, constants=constants).cpu()
        levels = ((here - there) * 255).round().abs()
        assert levels.max() <= 1
        assert (levels > 0).float().mean() < 0.002
