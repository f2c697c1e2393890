"""RandAugment and AutoAugment, operation by operation against torchvision on single images."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment
from torchvision.transforms.autoaugment import _apply_op

from hardtack.base import randomness
from hardtack.data import AugmentConfig, make_augment
from hardtack.data.policies import OPERATIONS, apply_operations, magnitude

SIZE = 32
CASES = [
    (name, sign * level)
    for name in OPERATIONS[:15]
    for level in ((3, 9, 20, 30) if name not in ("Identity", "AutoContrast", "Equalize", "Invert") else (0,))
    for sign in ((1, -1) if name in OPERATIONS[1:10] else (1,))
]


def smooth_images(count: int = 3) -> torch.Tensor:
    """8-bit images with structure: random low resolution, enlarged."""
    keys = randomness.make_keys(torch.arange(count), 5)
    small = randomness.uniform(keys, (3, 6, 6))
    large = torch.nn.functional.interpolate(small, size=(SIZE, SIZE), mode="bicubic").clamp(0.1, 0.8)
    return (large * 255).round().to(torch.uint8)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_each_operation_is_torchvisions(name: str, level: int) -> None:
    eight_bit = smooth_images()
    ours_size = magnitude(name, abs(level), 31) * (1 if level >= 0 else -1)
    theirs_size = {"Solarize": ours_size * 255}.get(name, ours_size * (SIZE if name.startswith("Trans") else 1))
    ours = apply_operations(
        eight_bit / 255, torch.full((3,), OPERATIONS.index(name)), torch.full((3,), float(ours_size))
    )
    on_grid = name in ("Posterize", "Equalize", "Solarize", "Invert")
    image = eight_bit if on_grid else eight_bit / 255
    theirs = torch.stack(
        [_apply_op(one, name, theirs_size, interpolation=InterpolationMode.NEAREST, fill=None) for one in image]
    )
    theirs = theirs / 255 if on_grid else theirs
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 2e-6


def test_magnitudes_are_torchvisions() -> None:
    for bins, space in ((31, RandAugment()._augmentation_space(31, (64, 64))),
                        (10, AutoAugment()._augmentation_space(10, (64, 64)))):  # fmt: skip
        for name, (values, _) in space.items():
            if values.ndim:
                scale = {"Solarize": 255, "TranslateX": 64, "TranslateY": 64}.get(name, 1)
                ours = [magnitude(name, level, bins) * scale for level in range(bins)]
                torch.testing.assert_close(torch.tensor(ours, dtype=torch.float64), values.double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("policy", ["randaugment", "autoaugment_cifar10", "autoaugment_imagenet"])
def test_an_image_depends_on_its_key_alone_and_policies_vary(policy: str) -> None:
    x = (smooth_images(1) / 255).expand(64, -1, -1, -1).contiguous()
    keys = randomness.make_keys(torch.arange(64), 1)
    augment = make_augment(AugmentConfig(policy=policy), 10)
    whole = augment(x, torch.zeros(64, dtype=torch.int64), keys)[0]
    parts = torch.cat([augment(x[a:b], None, keys[a:b])[0] for a, b in ((0, 1), (1, 30), (30, 64))])
    assert torch.equal(whole, parts)
    assert len({row.numpy().tobytes() for row in whole}) > 15
    assert whole.min() >= 0 and whole.max() <= 1 and whole.dtype == torch.float32


def test_autoaugment_applies_operations_as_often_as_published() -> None:
    """Share of images no slot of the CIFAR-10 policy touches: mean over sub-policies of (1−p₁)(1−p₂)."""
    policies = AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    untouched = sum((1 - a[1]) * (1 - b[1]) for a, b in policies) / len(policies)
    augment = make_augment(AugmentConfig(policy="autoaugment_cifar10"), 10)
    count = 3000
    table = augment.policy.table
    draws = randomness.uniform(randomness.make_keys(torch.arange(count), 2), (2, 3), 7)
    chosen = table[(draws[:, 0, 0] * len(table)).long()]
    drawn = (draws[:, :, 2] >= chosen[:, :, 1]).all(dim=1).float().mean().item()
    assert table.shape == (25, 2, 4)
    assert abs(drawn - untouched) < 0.03
