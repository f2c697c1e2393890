"""Gaussian, defocus and zoom blur against literal NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, flat, pictures
from scipy import ndimage

from hardtack.data.corruptions import blur, filters, zoom

GAUSSIAN = {"cifar": [0.4, 0.6, 0.7, 0.8, 1], "imagenet": [1, 2, 3, 4, 6]}
DEFOCUS = {
    "cifar": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    "imagenet": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
}
ZOOM = {
    "cifar": [
        np.arange(1, 1.06, 0.01), np.arange(1, 1.11, 0.01), np.arange(1, 1.16, 0.01), np.arange(1, 1.21, 0.01),
        np.arange(1, 1.26, 0.01),
    ],
    "imagenet": [
        np.arange(1, 1.11, 0.01), np.arange(1, 1.16, 0.01), np.arange(1, 1.21, 0.02), np.arange(1, 1.26, 0.02),
        np.arange(1, 1.31, 0.03),
    ],
}  # fmt: skip
CASES = [(constants, severity) for constants in GAUSSIAN for severity in range(1, 6)]
KEYS = torch.zeros(2, dtype=torch.int64)


def cut(image: np.ndarray) -> np.ndarray:
    return np.uint8(np.clip(image, 0, 1) * 255)


@pytest.mark.parametrize(("constants", "severity"), CASES)
@pytest.mark.parametrize("size", [(32, 32), (17, 31)])
def test_gaussian_blur_has_the_same_bits(constants, severity, size):
    x, sigma = pictures(2, *size), GAUSSIAN[constants][severity - 1]
    smooth = [
        ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=4) for image in arrays(x)
    ]
    assert np.array_equal(arrays(blur.gaussian_blur(x, KEYS, severity, constants)), cut(np.stack(smooth)))
    planes = torch.from_numpy(arrays(x) / 255).permute(0, 3, 1, 2)
    assert np.array_equal(filters.gaussian_filter(planes, sigma).permute(0, 2, 3, 1).numpy(), np.stack(smooth))


def mirrored(place: int, size: int) -> int:
    """… 2 1 | 0 1 2 … size−1 | size−2 …"""
    while not 0 <= place < size:
        place = -place if place < 0 else 2 * (size - 1) - place
    return place


def literal_disc(radius: float, sigma: float) -> np.ndarray:
    """Pixels within the radius, of sum 1, smoothed over 3×3 (5×5) pixels, mirrored at the frame's edge; float32."""
    reach, smooth = (8, 1) if radius <= 8 else (radius, 2)
    side = 2 * reach + 1
    disc = np.array([[(i - reach) ** 2 + (j - reach) ** 2 <= radius**2 for j in range(side)] for i in range(side)])
    disc = disc.astype(np.float32) / np.float32(disc.sum())
    weights = np.exp([-(k**2) / (2 * sigma**2) for k in range(-smooth, smooth + 1)])
    weights = (weights / weights.sum()).astype(np.float32)[smooth:]
    for _ in range(2):  # rows, then columns by way of the transpose
        out = np.zeros_like(disc)
        for i in range(side):
            for j in range(side):
                out[i, j] = disc[i, j] * weights[0]
                for k in range(1, smooth + 1):
                    out[i, j] += (disc[i, mirrored(j - k, side)] + disc[i, mirrored(j + k, side)]) * weights[k]
        disc = out.T.copy()
    return disc.astype(np.float64)


@pytest.mark.parametrize(("constants", "severity"), CASES)
@pytest.mark.parametrize("size", [(32, 32), (17, 31)])
def test_defocus_blur_has_the_same_bits(constants, severity, size):
    x, kernel = pictures(2, *size), literal_disc(*DEFOCUS[constants][severity - 1])
    expected = [
        np.stack([ndimage.correlate(image[..., c] / 255, kernel, mode="mirror") for c in range(3)], axis=-1)
        for image in arrays(x)
    ]
    assert np.array_equal(arrays(blur.defocus_blur(x, KEYS, severity, constants)), cut(np.stack(expected)))


@pytest.mark.parametrize(("severity", "white", "grey"), [(1, 254, 99), (4, 255, 101), (5, 255, 101)])
def test_defocus_blur_keeps_the_faults_of_the_kernel(severity, white, grey):
    made = blur.defocus_blur(torch.cat([flat(255, 1), flat(100, 1)]), KEYS, severity, "imagenet") * 255
    assert made[0].unique().tolist() == [white]
    assert made[1].unique().tolist() == [grey]


def literal_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    size = image.shape[0]
    length = int(np.ceil(size / factor))
    top = (size - length) // 2
    large = ndimage.zoom(image[top : top + length, top : top + length], (factor, factor, 1), order=1)
    trim = (large.shape[0] - size) // 2
    return large[trim : trim + size, trim : trim + size]


@pytest.mark.parametrize(("constants", "severity"), CASES)
@pytest.mark.parametrize("size", [32, 47])
def test_zoom_blur(constants, severity, size):
    x, expected, factors = pictures(2, size, size), [], ZOOM[constants][severity - 1]
    for image in arrays(x):
        image = (image / 255).astype(np.float32)
        total = image.copy()
        for factor in factors:
            total += literal_zoom(image, factor)
        expected.append(cut(total / (len(factors) + 1)).astype(int))
    wrong = np.abs(arrays(zoom.zoom_blur(x, KEYS, severity, constants)) - np.stack(expected))
    assert wrong.max() <= 1
    assert (wrong[(np.stack(expected) > 0) & (np.stack(expected) < 254)] > 0).mean() < 0.002


@pytest.mark.parametrize("factor", [1, 1.03, 1.25, 1.75, 2.25, 4.5])
def test_zoom_middle(factor):
    x = pictures(1)
    made = zoom.zoom_middle(x, factor)[0].permute(1, 2, 0).numpy()
    assert np.abs(made - literal_zoom(arrays(x)[0] / 255, factor)).max() < 1e-6


def test_zoom_treats_the_sides_of_an_oblong_image_alike():
    tall = pictures(1, 31, 17)
    wide = zoom.zoom_blur(tall.mT.contiguous(), KEYS[:1], 3, "cifar")
    assert torch.allclose(wide.mT, zoom.zoom_blur(tall, KEYS[:1], 3, "cifar"), atol=1e-6)


def test_the_margin_may_be_longer_than_the_image():
    x = torch.arange(3.0).view(1, 1, 1, 3)
    assert filters.pad(x, 5, "reflect", -1).flatten().tolist() == [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]
    assert filters.pad(x, 2, "nearest", -1).flatten().tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert filters.pad(x, 2, "reflect", -2).flatten().tolist() == [0, 1, 2] * 5


def test_flat_images_stay():
    for level in (0, 1, 100, 255):
        assert torch.equal(zoom.zoom_blur(flat(level, 2), KEYS, 5, "imagenet"), flat(level, 2))
        assert torch.equal(blur.gaussian_blur(flat(level, 2), KEYS, 4, "imagenet"), flat(level, 2))
