"""JPEG against Pillow, byte for byte: the codec's path and the GPU's arithmetic."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from PIL import Image

from hardtack.data.corruptions import corrupt
from hardtack.data.corruptions import jpeg as jpeg_module
from hardtack.data.corruptions.jpeg import by_arithmetic, compress

QUALITY = {"cifar": [80, 65, 58, 50, 40], "imagenet": [25, 18, 15, 10, 7]}


def by_pillow(x, quality):
    made = []
    for image in map(Image.fromarray, arrays(x)):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        made.append(np.asarray(Image.open(file)))
    return np.stack(made).transpose(0, 3, 1, 2)


def difficult(height, width):
    """Pictures, noise, and black and white: values that run over at both ends."""
    x = pictures(3, height, width)
    rng = np.random.default_rng(height * width)
    x[1] = torch.from_numpy(rng.integers(0, 256, (3, height, width))) / 255
    x[2] = (x[1] > 0.5).float()
    return x


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_equal_to_pillow(severity, constants):
    x = difficult(32, 32)
    made = (corrupt(x, torch.arange(3), "jpeg_compression", severity, constants=constants) * 255).round()
    assert (made.numpy() == by_pillow(x, QUALITY[constants][severity - 1])).all()


@pytest.mark.parametrize("quality", [1, 7, 25, 49, 50, 65, 80, 85, 100])
def test_both_paths_at_all_sizes(quality):
    for size in ((32, 32), (17, 31), (1, 1), (2, 2), (5, 4), (4, 6), (8, 5), (16, 48), (47, 18), (224, 224)):
        x = difficult(*size)
        expected = by_pillow(x, quality)
        assert ((by_arithmetic(x, quality) * 255).round().numpy() == expected).all()
        assert ((compress(x, quality) * 255).round().numpy() == expected).all()


def test_threads_keep_the_order(monkeypatch):
    monkeypatch.setattr(jpeg_module, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(jpeg_module.torch, "get_num_threads", lambda: 3)
    x = pictures(7, 17, 31)
    assert ((compress(x, 40) * 255).round().numpy() == by_pillow(x, 40)).all()
