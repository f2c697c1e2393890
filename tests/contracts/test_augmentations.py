"""Every augmentation keeps shape, type and range, and treats an image by its key alone."""

from __future__ import annotations

import pytest
import torch

from hardtack.base import randomness
from hardtack.data import AugmentConfig, make_augment

AUGMENTATIONS = {
    "flip": {"flip": 0.5},
    "crop, zero": {"crop_padding": 3},
    "crop, reflect": {"crop_padding": 3, "crop_mode": "reflect"},
    "resized crop": {"resized_crop": (0.1, 1.0)},
    "resized crop, bicubic": {"resized_crop": (0.1, 1.0), "resized_crop_interpolation": "bicubic"},
    "resized crop, areas above 1": {"resized_crop": (0.6, 1.2), "resized_crop_ratio": (1, 2)},
    "rotation": {"rotate": 10.0},
    "rotation, bilinear": {"rotate": 10.0, "rotate_interpolation": "bilinear"},
    "colour jitter": {"color_jitter": 0.4},
    "colour jitter with hue": {"color_jitter": 0.4, "color_jitter_hue": 0.1},
    "cutout": {"cutout": 5},
    "erasing, noise": {"erase": 0.7},
    "erasing, black": {"erase": 0.7, "erase_mode": "const"},
    "erasing, normal": {"erase": 0.7, "erase_mode": "normal"},
    "erasing, normalised": {"erase": 0.7, "erase_mode": "normalised", "erase_after_mixing": True},
    "randaugment": {"policy": "randaugment"},
    "randaugment, bilinear": {"policy": "randaugment", "policy_interpolation": "bilinear"},
    "autoaugment cifar10": {"policy": "autoaugment_cifar10"},
    "autoaugment imagenet": {"policy": "autoaugment_imagenet"},
    "timm's randaugment": {"policy": "rand-m9-mstd0.5-inc1"},
    "timm's randaugment, uniform": {"policy": "rand-m9-n3-p1-mstd101", "policy_interpolation": "bilinear"},
    "policy first": {"policy": "autoaugment_cifar10", "policy_first": True, "crop_padding": 2},
    "all": {
        "flip": 0.5,
        "crop_padding": 2,
        "policy": "randaugment",
        "color_jitter": 0.2,
        "erase": 0.3,
        "cutout": 3,
    },
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_shape_range_and_independence_of_the_batch(name: str) -> None:
    keys = randomness.make_keys(torch.arange(24), 0)
    x = (randomness.uniform(keys, (3, 12, 20), 1) * 255).round() / 255
    y = torch.arange(24) % 5
    augment = make_augment(AugmentConfig(**AUGMENTATIONS[name]), 5)
    before = torch.get_rng_state()
    out, labels = augment(x, y, keys)
    assert torch.equal(torch.get_rng_state(), before)
    assert out.shape == x.shape and out.dtype == torch.float32
    assert out.min() >= 0 and out.max() <= 1 and not torch.equal(out, x)
    assert torch.equal(labels, y)
    order = torch.arange(23, -1, -1)
    assert torch.equal(augment(x[order], y[order], keys[order])[0], out[order])
    single = torch.cat([augment(x[i : i + 1], y[i : i + 1], keys[i : i + 1])[0] for i in range(24)])
    torch.testing.assert_close(single, out, atol=1e-6, rtol=0)
    other = augment(x, y, randomness.make_keys(torch.arange(24), 1))[0]
    assert not torch.equal(other, out)
