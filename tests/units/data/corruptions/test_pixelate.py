"""Pixelate against Pillow, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from PIL import Image

from hardtack.data.corruptions import corrupt
from hardtack.data.corruptions.pixelate import shrink_and_enlarge

SCALE = {"cifar": [0.95, 0.9, 0.85, 0.75, 0.65], "imagenet": [0.6, 0.5, 0.4, 0.3, 0.25]}


def by_pillow(x, scale):
    made = []
    for image in map(Image.fromarray, arrays(x)):
        small = [max(1, int(side * scale)) for side in image.size]
        made.append(np.asarray(image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)))
    return np.stack(made).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (17, 31), (224, 224), (3, 2)])
def test_equal_to_pillow(severity, constants, height, width):
    x = pictures(2, height, width)
    made = (corrupt(x, torch.arange(2), "pixelate", severity, constants=constants) * 255).round()
    assert (made.numpy() == by_pillow(x, SCALE[constants][severity - 1])).all()


def test_equal_to_pillow_for_all_sizes_and_scales():
    rng = np.random.default_rng(0)
    for size in range(1, 90, 4):
        noise = torch.from_numpy(rng.integers(0, 256, (1, 3, size, size + 3))).float() / 255
        for scale in (0.13, 0.25, 1 / 3, 0.5, 0.77, 0.99):
            assert (shrink_and_enlarge(noise, scale).mul(255).round().numpy() == by_pillow(noise, scale)).all()
