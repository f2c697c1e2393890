"""What holds for every weather and digital corruption, in both sets of constants."""

from __future__ import annotations

import pytest
import torch
from pictures import pictures

from hardtack.data.corruptions import corrupt

RANDOM = ("snow", "frost", "fog", "elastic_transform", "spatter")
NAMES = (*RANDOM, "brightness", "contrast", "pixelate", "jpeg_compression", "saturate")
# the published constants let these severities change an image no more than the one before: elastic trades reach for
# roughness, saturation falls before it rises, snow and spatter raise their thresholds, frost lets less through
NOT_STRONGER = {
    *(("elastic_transform", "cifar", severity) for severity in (2, 3, 4, 5)), ("elastic_transform", "imagenet", 3),
    ("frost", "cifar", 4), ("frost", "imagenet", 4), ("saturate", "cifar", 3), ("saturate", "imagenet", 3),
    ("snow", "imagenet", 3), ("spatter", "imagenet", 3),
}  # fmt: skip


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", NAMES)
def test_severities_grow_and_stay_in_range(name, constants):
    x, index, last = pictures(24, 40, 40), torch.arange(24), 0.0
    for severity in range(1, 6):
        made = corrupt(x, index, name, severity, constants=constants)
        assert made.isfinite().all() and made.min() >= 0 and made.max() <= 1
        assert torch.equal(made * 255, (made * 255).round())
        change = (made - x).square().mean().item()
        assert change > (0 if (name, constants, severity) in NOT_STRONGER else last)
        last = change


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_corrupted_alike_in_every_batch(name):
    for constants, severity, size in (("cifar", 3, (32, 32)), ("imagenet", 2, (17, 31))):
        x, index = pictures(150, *size), torch.arange(150) * 7
        whole = corrupt(x, index, name, severity, constants=constants)
        order = torch.randperm(150, generator=torch.Generator().manual_seed(0))
        assert torch.equal(corrupt(x[order], index[order], name, severity, constants=constants), whole[order])
        few = [128, 3, 77]
        assert torch.equal(corrupt(x[few], index[few], name, severity, constants=constants), whole[few])


@pytest.mark.parametrize("name", NAMES)
def test_the_images_given_are_left_alone(name):
    x = pictures(2)
    before = x.clone()
    corrupt(x, torch.arange(2), name, 1)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", RANDOM)
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
        for severity in (1, 5):
            made = corrupt(x, torch.arange(3), name, severity, constants=constants)
            assert made.shape == x.shape and made.isfinite().all()
    assert corrupt(x[:0], torch.arange(0), name, 5).shape == (0, 3, *size)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_agrees(name, constants):
    x, index = pictures(40, 64, 47), torch.arange(40)
    for severity in range(1, 6):
        here = corrupt(x, index, name, severity, constants=constants)
        there = corrupt(x.cuda(), index.cuda(), name, severity, constants=constants).cpu()
        levels = ((here - there) * 255).round().abs()
        assert (levels > 1).float().mean() < 1e-4
        assert (levels > 0).float().mean() < (0.002 if name in RANDOM else 1e-9)
