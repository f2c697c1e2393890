"""Motion blur, brightness, snow and spatter against the published steps on one image at a time."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import gaussian_filter, zoom

from hardtack.base import randomness
from hardtack.data.corruptions.motion import blur_along, motion_blur_kernel
from hardtack.data.corruptions.spatter import drop_light
from hardtack.data.perturbations import sequence, weather

BOTH = pytest.mark.parametrize("constants", ["cifar", "imagenet"])


def film(x, name, constants):
    return list(sequence(x, torch.arange(len(x)), name, constants=constants))


@BOTH
def test_motion_blur_turns_to_the_right(constants):
    """One bright pixel is smeared to where its light is taken from: opposite to the angle, as long as the kernel."""
    radius, sigma, step, last = {"cifar": (6, 1.8, 9, 20), "imagenet": (10, 3, 4, 30)}[constants]
    x = torch.zeros(1, 3, 61, 61)
    x[:, :, 30, 30] = 1
    weights = motion_blur_kernel(radius, sigma)
    for number, frame in enumerate(film(x, "motion_blur", constants)):
        angle = np.deg2rad((number - last) * step)
        expected = np.zeros((61, 61))
        for distance, weight in enumerate(weights):
            down, right = (np.ceil(distance * part - 0.5) for part in (np.sin(angle), np.cos(angle)))
            expected[int(30 - down), int(30 - right)] += weight
        difference = np.abs(arrays(frame)[0, :, :, 0] - 255 * expected)
        assert (difference > 0.51).sum() <= 2  # a tap on the edge between two pixels may go to either
    assert arrays(frame)[0, 30, :30].sum() > 0 and arrays(frame)[0, 30, 31:].sum() == 0  # at 0 degrees from the right


@BOTH
def test_brightness_in_even_steps(constants):
    x = pictures(1, 9, 7)
    step = {"cifar": 1.5, "imagenet": 2}[constants]
    for number, frame in enumerate(film(x, "brightness", constants)):
        for pixel, made in zip(arrays(x).reshape(-1, 3), arrays(frame).reshape(-1, 3), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
            value = min(max(value + (number - 15) * step / 100, 0), 1)
            exact = 255 * np.array(colorsys.hsv_to_rgb(hue, saturation, value))
            assert (np.floor(exact - 1e-6) <= made).all() and (made <= np.floor(exact + 1e-6)).all()


def clipped_zoom(layer, factor):
    size = layer.shape[0]
    crop = int(np.ceil(size / factor))
    top = (size - crop) // 2
    large = zoom(layer[top : top + crop, top : top + crop], factor, order=1)
    top = (large.shape[0] - size) // 2
    return large[top : top + size, top : top + size]


@pytest.mark.parametrize(("make", "constants"), [(weather.snow, "cifar"), (weather.snow, "imagenet")])
def test_snow_is_one_layer_in_a_turning_wind(make, constants):
    factor, radius, sigma = {"cifar": (2, 10, 2), "imagenet": (3, 14, 4)}[constants]
    x, keys = pictures(2, 48, 48), randomness.make_keys(torch.arange(2))
    noise = randomness.normal(keys, (48, 48)).double().numpy() * 0.3 + 0.05
    for number, frame in enumerate(make(x, keys, constants, 31)):
        if number % 10:
            continue
        for place, image in enumerate(arrays(x) / 255.0):
            layer = clipped_zoom(noise[place], factor)
            layer = np.uint8(np.clip(np.where(layer < 0.5, 0, layer), 0, 1) * 255)
            angle = torch.tensor([number * 4.0 - 150])
            layer = blur_along(torch.from_numpy(layer)[None, None].float() / 255, angle, radius, sigma)[0, 0].numpy()
            light = (image @ [0.299, 0.587, 0.114] * 1.5 + 0.5)[..., None]
            exact = 0.85 * image + 0.15 * np.maximum(image, light) + (layer + np.rot90(layer, k=2))[..., None]
            difference = np.uint8(np.clip(exact, 0, 1) * 255).astype(int) - arrays(frame)[place]
            assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.01


@BOTH
def test_spatter_runs_down(constants):
    mean, deviation, smoothing, threshold, kernel = {
        "cifar": (0.6, 0.265, 1.75, 0.7, [0.2, 0.8]),
        "imagenet": (0.65, 0.27, 3.7, 0.69, [0.05, 0.1, 0.15, 0.7]),
    }[constants]
    x, keys = pictures(2, 40, 40), randomness.make_keys(torch.arange(2), 5)
    noise = randomness.normal(keys, (40, 40)).double().numpy() * deviation + mean
    liquids = [gaussian_filter(one, smoothing, mode="nearest", truncate=4) for one in noise]
    liquids = [np.where(liquid < threshold, 0, liquid) for liquid in liquids]
    lit = 0
    for frame in weather.spatter(x, keys, constants, 31):
        for place, image in enumerate(arrays(x) / 255.0):
            levels = (liquids[place] * 255).astype(np.uint8)
            light = levels * drop_light(torch.from_numpy(levels.astype(np.int32))[None])[0].numpy().astype(np.float32)
            lit += light.max() > 0
            water = 0.6 * light / max(1, light.max())
            exact = image + water[..., None] * np.array([175, 238, 238]) / 255
            difference = np.uint8(np.clip(exact, 0, 1) * 255).astype(int) - arrays(frame)[place]
            assert (difference != 0).mean() < 0.02  # float32: a level of liquid, or of grey, that is just missed
            liquids[place] = np.apply_along_axis(np.convolve, 0, liquids[place], kernel, mode="same")
    assert lit > 31
