"""Motion blur against a literal loop over pixels and distances, as ImageMagick's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pictures import arrays, flat, pictures

from hardtack.data.corruptions import motion

PUBLISHED = {
    "cifar": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    "imagenet": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
}
CASES = [(constants, severity) for constants in PUBLISHED for severity in range(1, 6)]


def literal(image: np.ndarray, angle: float, radius: float, sigma: float) -> np.ndarray:
    """H×W×C uint8 through 16-bit sums and back to 8 bits."""
    height, width, channels = image.shape
    taps = 2 * math.ceil(radius) + 1
    kernel = [math.exp(-i * i / (2 * sigma * sigma)) / (math.sqrt(2 * math.pi) * sigma) for i in range(taps)]
    kernel = [weight / sum(kernel) for weight in kernel]
    point_x, point_y = taps * math.sin(math.radians(angle)), taps * math.cos(math.radians(angle))
    length = math.hypot(point_x, point_y)
    out = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                total = 0.0
                for i, weight in enumerate(kernel):
                    right, down = math.ceil(i * point_y / length - 0.5), math.ceil(i * point_x / length - 0.5)
                    row, column = min(max(y + down, 0), height - 1), min(max(x + right, 0), width - 1)
                    total += weight * int(image[row, column, c]) * 257
                out[y, x, c] = (int(total + 0.5) + 128) // 257
    return out


@pytest.mark.parametrize(("constants", "severity"), CASES)
def test_agrees_with_the_literal_loop(constants, severity):
    x, keys = pictures(2, 11, 9, seed=severity), torch.tensor([3, 4])
    made = arrays(motion.motion_blur(x, keys, severity, constants)).astype(int)
    angles = motion.draw_angles(keys, -45, 45, 0).tolist()
    radius, sigma = PUBLISHED[constants][severity - 1]
    expected = np.stack([literal(image, angle, radius, sigma) for image, angle in zip(arrays(x), angles, strict=True)])
    assert np.abs(made - expected).max() <= 1
    assert (made != expected).mean() < 0.005  # float32 beside float64, where a sum ends in one half


@pytest.mark.parametrize("angle", [0, 30, 45, 90, 180, -30, -45, -90, -135])
def test_every_direction(angle):
    x = pictures(1, 17, 12)
    made = arrays(motion.blur_along(x, torch.tensor([float(angle)]), 4, 3))
    assert np.abs(made[0].astype(int) - literal(arrays(x)[0], angle, 4, 3)).max() <= 1
    assert (made[0] != literal(arrays(x)[0], angle, 4, 3)).mean() < 0.005


def test_a_dot_is_drawn_out_to_one_side():
    x = torch.zeros(2, 1, 9, 9)
    x[:, :, 4, 4] = 1
    made = motion.blur_along(x, torch.tensor([0.0, 90.0]), 1, 1)
    across, down = made[0, 0], made[1, 0]
    assert across[4].nonzero().flatten().tolist() == [2, 3, 4]  # these take from their right
    assert across[4, 4] > across[4, 3] > across[4, 2]
    assert torch.equal(down, across.t())


def test_angles_cover_a_right_angle():
    angles = motion.draw_angles(torch.arange(20_000), -45, 45, 0)
    assert angles.min() >= -45 and angles.max() < 45
    assert abs(angles.mean()) < 1 and abs(angles.std() - 90 / math.sqrt(12)) < 0.5


def test_flat_images_stay_and_parts_do_not_show():
    assert torch.equal(motion.blur_along(flat(201, 3), torch.tensor([1.0, 2.0, 3.0]), 20, 15), flat(201, 3))
    x, angles = pictures(150), torch.linspace(-180, 180, 150)
    whole = motion.blur_along(x, angles, 9, 2.5)
    alone = torch.cat([motion.blur_along(x[n : n + 1], angles[n : n + 1], 9, 2.5) for n in (0, 70, 149)])
    assert torch.equal(whole[[0, 70, 149]], alone)
