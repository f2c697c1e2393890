"""Brightness, saturation and contrast against HSV pixel by pixel in float64, and scikit-image where it is installed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pictures import arrays, pictures

from hardtack.data.corruptions import corrupt

BRIGHTER = {"cifar": [0.05, 0.1, 0.15, 0.2, 0.3], "imagenet": [0.1, 0.2, 0.3, 0.4, 0.5]}
CONTRAST = {"cifar": [0.75, 0.5, 0.4, 0.3, 0.15], "imagenet": [0.4, 0.3, 0.2, 0.1, 0.05]}
SATURATION = {
    "cifar": [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
    "imagenet": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
}


def to_hsv(red, green, blue):
    value, chroma = max(red, green, blue), max(red, green, blue) - min(red, green, blue)
    if chroma == 0:
        return 0.0, 0.0, value
    if blue == value:
        hue = 4 + (red - green) / chroma
    elif green == value:
        hue = 2 + (blue - red) / chroma
    else:
        hue = (green - blue) / chroma
    return (hue / 6) % 1, chroma / value, value


def from_hsv(hue, saturation, value):
    sector = math.floor(hue * 6)
    part = hue * 6 - sector
    low = value * (1 - saturation)
    falling, rising = value * (1 - part * saturation), value * (1 - (1 - part) * saturation)
    return (
        (value, rising, low), (falling, value, low), (low, value, rising),
        (low, falling, value), (rising, low, value), (value, low, falling),
    )[sector]  # fmt: skip


def through_hsv(x, change):
    """N×H×W×3 in [0,1] after `change` of (hue, saturation, value) of every pixel."""
    image = arrays(x) / 255.0
    made = [from_hsv(*change(*to_hsv(*pixel))) for pixel in image.reshape(-1, 3).tolist()]
    return np.array(made).reshape(image.shape)


def with_greys():
    x = pictures(3, 17, 31)
    x[:, :, :3] = torch.arange(31) / 255  # dark greys and black
    x[:, :, 3:5] = 1
    return x


def compare(x, name, severity, constants, expected):
    made = corrupt(x, torch.arange(len(x)), name, severity, constants=constants) * 255
    assert (made.round().numpy() == np.uint8(np.clip(expected, 0, 1) * 255).transpose(0, 3, 1, 2)).all()


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_brightness(severity, constants):
    added, x = BRIGHTER[constants][severity - 1], with_greys()
    expected = through_hsv(x, lambda hue, saturation, value: (hue, saturation, min(value + added, 1)))
    compare(x, "brightness", severity, constants, expected)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_saturate(severity, constants):
    (factor, added), x = SATURATION[constants][severity - 1], with_greys()
    expected = through_hsv(x, lambda hue, saturation, value: (hue, min(saturation * factor + added, 1), value))
    compare(x, "saturate", severity, constants, expected)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_contrast(severity, constants):
    image = arrays(with_greys()) / 255.0
    mean = image.mean(axis=(1, 2), keepdims=True)
    expected = (image - mean) * CONTRAST[constants][severity - 1] + mean
    compare(with_greys(), "contrast", severity, constants, expected)


def test_grey_turns_red_where_saturation_is_added():
    grey = torch.full((1, 3, 1, 1), 100 / 255)
    red, green, blue = corrupt(grey, torch.arange(1), "saturate", 5).flatten() * 255
    assert (round(red.item()), round(green.item()), round(blue.item())) == (100, 80, 80)


@pytest.mark.oracle
@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_equal_to_scikit_image(severity, constants):
    colour = pytest.importorskip("skimage.color", reason="scikit-image is not installed")
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 200, 200))).float() / 255
    added, (factor, more) = BRIGHTER[constants][severity - 1], SATURATION[constants][severity - 1]
    brighter, recoloured = (colour.rgb2hsv(arrays(x) / 255.0) for _ in range(2))
    brighter[..., 2] = np.clip(brighter[..., 2] + added, 0, 1)
    recoloured[..., 1] = np.clip(recoloured[..., 1] * factor + more, 0, 1)
    compare(x, "brightness", severity, constants, colour.hsv2rgb(brighter))
    compare(x, "saturate", severity, constants, colour.hsv2rgb(recoloured))
