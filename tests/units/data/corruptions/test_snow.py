"""Snow against the published steps on one image at a time, fed with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import zoom

from hardtack.base import randomness
from hardtack.data.corruptions.motion import blur_along
from hardtack.data.corruptions.snow import flakes, snow

CONSTANTS = {
    "cifar": [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    "imagenet": [
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ],
}  # fmt: skip


def clipped_zoom(layer, factor):
    size = layer.shape[0]
    crop = int(np.ceil(size / factor))
    top = (size - crop) // 2
    large = zoom(layer[top : top + crop, top : top + crop], factor, order=1)
    top = (large.shape[0] - size) // 2
    return large[top : top + size, top : top + size]


def one_layer(noise, factor, threshold):
    layer = clipped_zoom(noise, factor)
    layer = np.where(layer < threshold, 0, layer)
    return np.uint8(np.clip(layer, 0, 1) * 255)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize(("constants", "size"), [("cifar", 32), ("imagenet", 224)])
def test_snow(severity, constants, size):
    x, keys = pictures(2, size, size), randomness.make_keys(torch.arange(2), severity)
    mean, deviation, factor, threshold, radius, sigma, share = CONSTANTS[constants][severity - 1]
    noise = randomness.normal(keys, (size, size), 0).double() * deviation + mean
    angle = randomness.uniform(keys, (), 1).double() * 90 - 135
    made = snow(x, keys, severity, constants).permute(0, 2, 3, 1).numpy()
    for number, image in enumerate(arrays(x) / 255.0):
        layer = torch.from_numpy(one_layer(noise[number].numpy(), factor, threshold))[None, None].float() / 255
        layer = blur_along(layer, angle[number : number + 1], radius, sigma)[0, 0, :, :, None].numpy()
        light = (image @ [0.299, 0.587, 0.114] * 1.5 + 0.5)[..., None]
        expected = share * image + (1 - share) * np.maximum(image, light) + layer + np.rot90(layer, k=2)
        difference = np.abs(made[number] - expected)
        # a flake that falls to the level below, in float32, moves the pixels it is blurred over by one level
        assert difference.max() < 1.01 / 255
        assert (difference > 1e-5).mean() < 1e-3


def test_the_wind_blows_downwards():
    """Angles lie within 45 degrees of the vertical: a flake's trace is taller than wide."""
    x, keys = torch.zeros(300, 3, 32, 32), randomness.make_keys(torch.arange(300))
    made = snow(x, keys, 5, "cifar").mean(1)
    along = (made[:, 1:] - made[:, :-1]).square().mean()
    across = (made[:, :, 1:] - made[:, :, :-1]).square().mean()
    assert across > 2 * along


def test_other_shapes_are_enlarged_side_by_side():
    noise = torch.zeros(1, 1, 24, 48)
    noise[0, 0, 12, 24] = 1
    rows, columns = (torch.nonzero(flakes(noise, 2, 0.1)[0, 0].amax(dim)).flatten() for dim in (1, 0))
    assert abs(rows.float().mean() - 12) <= 1.5 and abs(columns.float().mean() - 24) <= 1.5
    assert 2 <= len(rows) <= 4 and 2 <= len(columns) <= 4
