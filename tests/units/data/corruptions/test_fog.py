"""Fog against the diamond-square algorithm on one array, fed with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures

from hardtack.base import randomness
from hardtack.data.corruptions.fog import draw_plasma, fog, plasma

CONSTANTS = {
    "cifar": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    "imagenet": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
}


def cloud(draws: list[np.ndarray], decay: float) -> np.ndarray:
    """S×S by the definition, place by place; `draws` are 3×m×m on [−1, 1) per level."""
    size = 2 * draws[-1].shape[-1]
    heights, step, wibble = np.zeros((size, size)), size, 100.0
    for square, across, along in draws:
        half = step // 2
        for place in np.ndindex(square.shape):
            y, x = step * place[0], step * place[1]
            corners = [heights[(y + a) % size, (x + b) % size] for a in (0, step) for b in (0, step)]
            heights[y + half, x + half] = np.mean(corners) + wibble * wibble * square[place]
        for place in np.ndindex(square.shape):
            y, x = step * place[0], step * place[1]
            ring = [heights[y, x], heights[y, (x + step) % size]]
            ring += [heights[(y + half) % size, x + half], heights[(y - half) % size, x + half]]
            over = np.mean(ring) + wibble * wibble * across[place]
            ring = [heights[y, x], heights[(y + step) % size, x]]
            ring += [heights[y + half, (x + half) % size], heights[y + half, (x - half) % size]]
            heights[y, x + half] = over
            heights[y + half, x] = np.mean(ring) + wibble * wibble * along[place]
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (17, 31)])
def test_fog(severity, constants, height, width):
    x, keys = pictures(2, height, width), randomness.make_keys(torch.arange(2), severity)
    x[1] *= 0.6  # the largest value is the image's own, not 1
    x = (x * 255).round() / 255
    strength, decay = CONSTANTS[constants][severity - 1]
    expected = []
    for number, image in enumerate(arrays(x) / 255.0):
        draws = [draw[number].double().numpy() for draw in draw_plasma(keys, max(height, width))]
        layer = cloud(draws, decay)[:height, :width, None]
        expected.append((image + strength * layer) * image.max() / (image.max() + strength))
    made = fog(x, keys, severity, constants)
    assert (made.permute(0, 2, 3, 1) - torch.tensor(np.array(expected))).abs().max() < 1e-5


def test_the_cloud_is_the_next_power_of_two():
    keys = randomness.make_keys(torch.arange(1))
    assert [plasma(draw_plasma(keys, size), 2).shape[-1] for size in (1, 2, 3, 32, 33, 224)] == [2, 2, 4, 32, 64, 256]


def test_draws_are_uniform_on_both_sides_of_zero():
    draws = draw_plasma(randomness.make_keys(torch.arange(400)), 32)
    for draw in draws:
        assert draw.min() >= -1 and draw.max() < 1
        assert abs(draw.mean().item()) < 4 * draw.numel() ** -0.5
        assert abs(draw.std().item() - 3**-0.5) < 0.05
    assert not torch.equal(draws[-1][0, 0], draws[-1][0, 1])


def test_black_stays_black():
    x = torch.zeros(1, 3, 8, 8)
    assert fog(x, torch.arange(1), 5, "imagenet").abs().max() == 0
