"""Elastic transform against OpenCV's fixed-point warp, written out, and SciPy, fed with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import gaussian_filter, map_coordinates

from hardtack.base import randomness
from hardtack.data.corruptions.elastic import elastic_transform, warp_affine

CONSTANTS = {
    "cifar": [(32 * a, 32 * b, 32 * c) for a, b, c in (
        (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))],
    "imagenet": [(244 * a, 244 * b, 244 * c) for a, b, c in (
        (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))],
}  # fmt: skip


def three_points(shape):
    centre, side = np.float32(shape) // 2, min(shape) // 3
    return np.float32([centre + side, [centre[0] + side, centre[1] - side], centre - side])


def mirrored(place, size):
    """… 2 1 | 0 1 2 …, by walking back and forth."""
    while not 0 <= place < size:
        place = -place if place < 0 else 2 * (size - 1) - place
    return place


def warp(image, before, after):
    """Pixel by pixel: the inverse of the map that takes `before` to `after`, its places rounded to 1/32."""
    corners = np.concatenate([before.astype(float), np.ones((3, 1))], axis=1)
    forward = np.linalg.solve(corners, after.astype(float)).T
    inverse = np.linalg.inv(np.vstack([forward, [0, 0, 1]]))[:2]
    height, width = image.shape[:2]
    made = np.empty_like(image)
    for y in range(height):
        for x in range(width):
            column, row = (
                (round((line[1] * y + line[2]) * 1024) + 16 + round(line[0] * x * 1024)) >> 5 for line in inverse
            )
            left, right = (mirrored((column >> 5) + more, width) for more in (0, 1))
            upper, lower = (mirrored((row >> 5) + more, height) for more in (0, 1))
            a, b = (column & 31) / 32, (row & 31) / 32
            made[y, x] = (1 - b) * ((1 - a) * image[upper, left] + a * image[upper, right]) + b * (
                (1 - a) * image[lower, left] + a * image[lower, right]
            )
    return made


def displaced(image, fields, alpha, sigma):
    across, along = (gaussian_filter(field, sigma, mode="reflect", truncate=3) * alpha for field in fields)
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    places = [rows + along, columns + across]
    return np.stack([map_coordinates(image[..., k], places, order=1, mode="reflect") for k in range(3)], axis=-1)


def literal(image, shift, fields, constants, warp):
    alpha, sigma, _ = constants
    points = three_points(image.shape[:2])
    return displaced(warp(image, points, points + shift), fields, alpha, sigma)


def same_draws(keys, height, width, reach):
    shift = np.float32(reach) * (randomness.uniform(keys, (3, 2), 0).numpy() * 2 - 1)
    return shift, randomness.uniform(keys, (2, height, width), 1).double().numpy() * 2 - 1


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize(
    ("constants", "height", "width"), [("cifar", 32, 32), ("cifar", 17, 31), ("imagenet", 180, 150)]
)
def test_elastic_transform(severity, constants, height, width):
    x, keys = pictures(1, height, width), randomness.make_keys(torch.arange(1), severity)
    numbers = CONSTANTS[constants][severity - 1]
    shift, fields = same_draws(keys, height, width, numbers[2])
    expected = literal(arrays(x)[0] / 255.0, shift[0], fields[0], numbers, warp)
    made = elastic_transform(x, keys, severity, constants)[0].permute(1, 2, 0).numpy()
    assert np.abs(made - expected).max() < 1e-5


def test_no_shift_is_no_change():
    x = pictures(2, 20, 24)
    assert torch.equal(warp_affine(x, torch.zeros(2, 3, 2)), x)


def test_points_move_by_what_was_drawn():
    """A white spot at one of the three points is found again where the point went."""
    x = torch.zeros(1, 3, 32, 32)
    x[:, :, 16 - 10, 16 + 10] = 1  # row above, column right
    made = warp_affine(x, torch.tensor([[[0.0, 0.0], [2.0, -1.0], [0.0, 0.0]]]))
    assert made[0, 0].argmax().item() == (6 - 1) * 32 + 26 + 2


@pytest.mark.oracle
@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize(("constants", "size"), [("cifar", (32, 32)), ("imagenet", (224, 224)), ("cifar", (17, 31))])
def test_equal_to_opencv(severity, constants, size):
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless 3 or 4 is not installed")
    if int(cv2.__version__.split(".")[0]) > 4:
        pytest.skip("OpenCV 5 no longer rounds places to 1/32 of a pixel")

    def warp(image, before, after):
        matrix = cv2.getAffineTransform(before, after)
        return cv2.warpAffine(image, matrix, image.shape[1::-1], borderMode=cv2.BORDER_REFLECT_101)

    x, keys = pictures(3, *size), randomness.make_keys(torch.arange(3), severity)
    numbers = CONSTANTS[constants][severity - 1]
    shift, fields = same_draws(keys, *size, numbers[2])
    made = elastic_transform(x, keys, severity, constants).permute(0, 2, 3, 1).numpy()
    for number, image in enumerate(arrays(x).astype(np.float32) / 255):
        expected = literal(image, shift[number], fields[number], numbers, warp)
        assert np.abs(made[number] - expected).max() < 1e-5
