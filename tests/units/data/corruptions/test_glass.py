"""Glass blur against the published loop, with the same shifts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import gaussian_filter

from hardtack.data.corruptions import catalogue, glass

PUBLISHED = {
    "cifar": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    "imagenet": [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
}
CASES = [(constants, severity) for constants in PUBLISHED for severity in range(1, 6)]


def smooth(image: np.ndarray, sigma: float) -> np.ndarray:
    return gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4)


def literal_shuffle(image: np.ndarray, down: np.ndarray, right: np.ndarray, reach: int) -> None:
    """In place, one H×W×3 image; `down` and `right` H×W."""
    height, width = image.shape[:2]
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            other_h, other_w = h + down[h, w], w + right[h, w]
            image[h, w], image[other_h, other_w] = image[other_h, other_w], image[h, w]


@pytest.mark.parametrize(("constants", "severity"), CASES)
@pytest.mark.parametrize("size", [(32, 32), (17, 31)])
def test_agrees_with_the_published_loop(constants, severity, size):
    sigma, reach, iterations = PUBLISHED[constants][severity - 1]
    x, keys = pictures(2, *size, seed=severity), torch.tensor([11, 12])
    draws = [glass.draw_shifts(keys, reach, size, n) for n in range(iterations)]
    expected = []
    for n, image in enumerate(arrays(x)):
        image = np.uint8(smooth(image, sigma) * 255)
        for down, right in draws:
            literal_shuffle(image, down[n].numpy(), right[n].numpy(), reach)
        expected.append(np.uint8(np.clip(smooth(image, sigma), 0, 1) * 255))
    assert np.array_equal(arrays(glass.glass_blur(x, keys, severity, constants)), np.stack(expected))


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
def test_chains_end_where_the_loop_ends(reach):
    down, right = glass.draw_shifts(torch.tensor([5]), reach, (40, 29), 0)
    assert (down.min(), down.max(), right.min(), right.max()) == (-reach, reach - 1, -reach, reach - 1)
    numbers = np.arange(40 * 29).reshape(40, 29, 1)
    literal_shuffle(numbers, down[0].numpy(), right[0].numpy(), reach)
    assert glass.shuffle(down, right, reach)[0].tolist() == numbers.flatten().tolist()


def test_a_swap_or_other_shifts_would_not_pass():
    down, right = glass.draw_shifts(torch.tensor([5]), 2, (40, 29), 0)
    source = glass.shuffle(down, right, 2)[0]
    assert len(source.unique()) < 0.85 * len(source)  # copies lose colours, swaps would not
    assert abs(down.double().mean() + 0.5) < 0.15  # −d … d−1, not −d … d


def test_images_too_small_to_shuffle_are_smoothed_only():
    x = pictures(2, 4, 6)
    made = catalogue.corrupt(x, torch.arange(2), "glass_blur", 5, constants="imagenet")
    assert made.isfinite().all() and made.shape == x.shape
