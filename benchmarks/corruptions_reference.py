"""The fifteen common corruptions in plain NumPy, SciPy and Pillow: what benchmarks/corruptions.py compares with.

One image at a time, the way the published scripts of Hendrycks and Dietterich (2019) go about it: a loop over the
pixels for glass blur, the overlay file opened for every image for frost, one enlargement after the other for zoom
blur. What those scripts leave to ImageMagick, OpenCV and scikit-image is array operations here. Random numbers are
NumPy's. Nothing is taken from hardtack, so that an error there cannot hide here.
"""

from __future__ import annotations

import functools
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image
from scipy import ndimage

Array = np.ndarray[Any, Any]

# fmt: off
CONSTANTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "cifar": {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": (500, 250, 100, 75, 50),
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "snow": ((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                 (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05),
                              (0.1, 0.03, 0.03)),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": (80, 65, 58, 50, 40),
    },
    "imagenet": {
        "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": (60, 25, 12, 5, 3),
        "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        "snow": ((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                 (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
        "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02),
                              (0.12, 0.01, 0.02)),
        "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": (25, 18, 15, 10, 7),
    },
}
# fmt: on
SMALL = {"cifar": True, "imagenet": False}  # whether overlays are shrunk to a fifth, and lengths are in 32 pixels

# Each takes an H×W×3 uint8 image, its constants and a generator, and returns grey levels (H×W×3, any type) to be
# limited to 0 … 255 and cut off to 8 bits.


def as_bytes(levels: Array) -> Array:
    """Limited to 0 … 255, and what follows the point cut off."""
    return np.clip(levels, 0, 255).astype(np.uint8)


def gaussian_noise(image: Array, sigma: float, rng: Generator) -> Array:
    return (image / 255.0 + rng.normal(size=image.shape, scale=sigma)) * 255


def shot_noise(image: Array, photons: float, rng: Generator) -> Array:
    return np.minimum(rng.poisson(image / 255.0 * photons) / float(photons), 1) * 255


def impulse_noise(image: Array, share: float, rng: Generator) -> Array:
    made = image / 255.0
    struck, salt = rng.random(image.shape) < share, rng.random(image.shape) < 0.5
    made[struck & salt], made[struck & ~salt] = 1, 0
    return made * 255


def disc(radius: float, sigma: float) -> Array:
    """Pixels within the radius, smoothed over 3×3 (5×5) of them, mirrored at the frame; float32 as OpenCV's."""
    reach, margin = (8, 1) if radius <= 8 else (int(radius), 2)
    place = np.arange(-reach, reach + 1)
    kernel = (place[:, None] ** 2 + place**2 <= radius**2).astype(np.float32)
    kernel /= kernel.sum()
    weights = np.exp(-(np.arange(-margin, margin + 1) ** 2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32)[margin:]
    for _ in range(2):  # rows, then columns by way of the transpose
        padded, side = np.pad(kernel, ((0, 0), (margin, margin)), mode="reflect"), len(kernel)
        kernel = kernel * weights[0]
        for far in range(1, margin + 1):
            before, after = (padded[:, margin + step : margin + step + side] for step in (-far, far))
            kernel = kernel + (before + after) * weights[far]
        kernel = np.ascontiguousarray(kernel.T)
    return kernel


def defocus_blur(image: Array, constants: tuple[float, float], rng: Generator) -> Array:
    kernel = disc(*constants).astype(np.float64)
    planes = [ndimage.correlate(image[..., channel] / 255.0, kernel, mode="mirror") for channel in range(3)]
    return np.stack(planes, axis=-1) * 255


def smooth(image: Array, sigma: float) -> Array:
    return ndimage.gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4)


def glass_blur(image: Array, constants: tuple[float, int, int], rng: Generator) -> Array:
    sigma, reach, iterations = constants
    made = as_bytes(smooth(image, sigma) * 255)
    height, width = made.shape[:2]
    for _ in range(iterations):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                right, down = rng.integers(-reach, reach, size=2)
                here, there = (row, column), (row + down, column + right)
                # meant as a swap; but both sides are views, so that the second assignment copies what the first wrote
                made[here], made[there] = made[there], made[here]
    return smooth(made, sigma) * 255


def blur_along(image: Array, angle: float, radius: float, sigma: float) -> Array:
    """H×W or H×W×3 uint8 as ImageMagick blurs it: one-sided, whole pixels, edges repeated, through 16 bits."""
    taps = 2 * math.ceil(radius) + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    below, beside = taps * math.sin(math.radians(angle)), taps * math.cos(math.radians(angle))
    length, (height, width) = math.hypot(below, beside), image.shape[:2]
    padded = np.pad(image.astype(np.float64) * 257, ((taps, taps), (taps, taps), *[(0, 0)] * (image.ndim - 2)), "edge")
    total = np.zeros(image.shape)
    for tap, weight in enumerate(weights):
        top, left = (taps + math.ceil(tap * step / length - 0.5) for step in (below, beside))
        total += weight * padded[top : top + height, left : left + width]
    return as_bytes((np.floor(total + 0.5) + 128) // 257)


def motion_blur(image: Array, constants: tuple[float, float], rng: Generator) -> Array:
    return blur_along(image, rng.uniform(-45, 45), *constants)


def zoom_middle(image: Array, factor: float) -> Array:
    """The middle of a square image, H×W or H×W×3, enlarged to the size it had."""
    size = image.shape[0]
    length = math.ceil(size / factor)
    start = (size - length) // 2
    part = image[start : start + length, start : start + length]
    large = ndimage.zoom(part, (factor, factor, 1)[: image.ndim], order=1)
    start = (large.shape[0] - size) // 2
    return large[start : start + size, start : start + size]


def zoom_blur(image: Array, constants: tuple[float, float], rng: Generator) -> Array:
    factors = np.arange(1, *constants)
    pixels = (image / 255.0).astype(np.float32)
    total = pixels.copy()
    for factor in factors:
        total += zoom_middle(pixels, factor)
    return (total / (len(factors) + 1)) * 255


def snow(image: Array, constants: tuple[float, ...], rng: Generator) -> Array:
    mean, deviation, factor, threshold, radius, sigma, share = constants
    layer = zoom_middle(rng.normal(size=image.shape[:2], loc=mean, scale=deviation), factor)
    layer[layer < threshold] = 0
    layer = blur_along(as_bytes(layer * 255), rng.uniform(-135, -45), radius, sigma)[..., None] / 255.0
    pixels = image / 255.0
    grey = 0.299 * pixels[..., :1] + 0.587 * pixels[..., 1:2] + 0.114 * pixels[..., 2:]
    pale = share * pixels + (1 - share) * np.maximum(pixels, grey * 1.5 + 0.5)
    return (pale + layer + np.rot90(layer, k=2)) * 255


def open_overlay(path: Path, small: bool) -> Array:
    picture = np.asarray(Image.open(path).convert("RGB"))
    return picture[2::5, 2::5] if small else picture  # bilinear to a fifth falls on whole pixels


kept_overlay = functools.cache(open_overlay)


def frost(
    image: Array, constants: tuple[float, float], rng: Generator, *, folder: Path, small: bool, keep: bool = False
) -> Array:
    share, frost_share = constants
    path = sorted(folder.glob("frost?.*"))[rng.integers(5)]  # of six
    overlay = kept_overlay(path, small) if keep else open_overlay(path, small)
    (height, width), (rows, columns) = image.shape[:2], overlay.shape[:2]
    top, left = rng.integers(0, rows - height), rng.integers(0, columns - width)
    return share * image + frost_share * overlay[top : top + height, left : left + width]


def plasma(size: int, decay: float, rng: Generator) -> Array:
    """size×size by the diamond-square algorithm on a torus, stretched to 0 … 1."""
    heights, step, wibble = np.zeros((size, size)), size, 100.0

    def displaced(total: Array) -> Array:
        return total / 4 + wibble * rng.uniform(-wibble, wibble, total.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=0)
        heights[half::step, half::step] = displaced(pairs + np.roll(pairs, -1, axis=1))
        centres = heights[half::step, half::step]
        rows = centres + np.roll(centres, 1, axis=0) + corners + np.roll(corners, -1, axis=1)
        columns = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=0)
        heights[::step, half::step], heights[half::step, ::step] = displaced(rows), displaced(columns)
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image: Array, constants: tuple[float, float], rng: Generator) -> Array:
    strength, decay = constants
    pixels, (height, width) = image / 255.0, image.shape[:2]
    cloud = plasma(2 ** math.ceil(math.log2(max(height, width))), decay, rng)[:height, :width, None]
    return ((pixels + strength * cloud) * pixels.max() / (pixels.max() + strength)) * 255


def brightness(image: Array, added: float, rng: Generator) -> Array:
    hue, saturation, value = to_hsv(image / 255.0)
    return from_hsv(hue, saturation, np.clip(value + added, 0, 1)) * 255


def to_hsv(pixels: Array) -> tuple[Array, Array, Array]:
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    value = pixels.max(axis=-1)
    chroma = value - pixels.min(axis=-1)
    safe = np.where(chroma == 0, 1, chroma)
    hue = np.where(green == value, 2 + (blue - red) / safe, (green - blue) / safe)
    hue = np.where(blue == value, 4 + (red - green) / safe, hue)
    hue = np.where(chroma == 0, 0, (hue / 6) % 1)
    return hue, np.where(chroma == 0, 0, chroma / np.where(value == 0, 1, value)), value


def from_hsv(hue: Array, saturation: Array, value: Array) -> Array:
    sector = np.floor(hue * 6)
    part = hue * 6 - sector
    low, falling = value * (1 - saturation), value * (1 - part * saturation)
    rising = value * (1 - (1 - part) * saturation)
    channels = (
        (value, falling, low, low, rising, value),
        (rising, value, value, falling, low, low),
        (low, low, rising, value, value, falling),
    )
    return np.stack([np.choose(sector.astype(int) % 6, channel) for channel in channels], axis=-1)


def contrast(image: Array, factor: float, rng: Generator) -> Array:
    pixels = image / 255.0
    mean = pixels.mean(axis=(0, 1), keepdims=True)
    return ((pixels - mean) * factor + mean) * 255


def elastic_transform(image: Array, constants: tuple[float, float, float], rng: Generator, *, small: bool) -> Array:
    displacement, sigma, reach = (value * (32 if small else 244) for value in constants)
    shape = image.shape[:2]
    centre, side = np.array(shape, np.float32) // 2, min(shape) // 3
    points = centre + np.array([(side, side), (side, -side), (-side, -side)], np.float32)
    shift = rng.uniform(-reach, reach, size=(3, 2)).astype(np.float32)
    warped = warp_affine((image / 255.0).astype(np.float32), points, points + shift)
    fields = [
        ndimage.gaussian_filter(rng.uniform(-1, 1, size=shape), sigma, mode="reflect", truncate=3) * displacement
        for _ in range(2)
    ]
    across, along = (field.astype(np.float32)[..., None] for field in fields)
    rows, columns, channels = np.mgrid[: shape[0], : shape[1], :3]
    places = (rows + along, columns + across, channels)
    return ndimage.map_coordinates(warped, places, order=1, mode="reflect") * 255


def warp_affine(image: Array, before: Array, after: Array) -> Array:
    """The map that takes three points to three others, with OpenCV's places in 1/32 of a pixel."""
    forward = np.linalg.solve(np.column_stack([before.astype(np.float64), np.ones(3)]), after.astype(np.float64)).T
    inverse = np.linalg.inv(np.vstack([forward, [0, 0, 1]]))
    height, width = image.shape[:2]
    places = []
    for line, size in ((inverse[0], width), (inverse[1], height)):
        along = np.rint((line[1] * np.arange(height) + line[2]) * 1024).astype(int) + 16
        fixed = (along[:, None] + np.rint(line[0] * np.arange(width) * 1024).astype(int)) >> 5
        near, far = (mirrored((fixed >> 5) + more, size) for more in (0, 1))
        places.append((near, far, ((fixed & 31) / 32).astype(np.float32)[..., None]))
    (left, right, part), (upper, lower, down) = places
    above = (1 - part) * image[upper, left] + part * image[upper, right]
    below = (1 - part) * image[lower, left] + part * image[lower, right]
    return (1 - down) * above + down * below


def mirrored(place: Array, size: int) -> Array:
    """… 2 1 | 0 1 2 …"""
    place = place % (2 * size - 2)
    return np.minimum(place, 2 * size - 2 - place)


def pixelate(image: Array, scale: float, rng: Generator) -> Array:
    picture = Image.fromarray(image)
    small = picture.resize((int(picture.width * scale), int(picture.height * scale)), Image.Resampling.BOX)
    return np.asarray(small.resize(picture.size, Image.Resampling.BOX))


def jpeg_compression(image: Array, quality: int, rng: Generator) -> Array:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def function(name: str, constants: str, *, folder: Path, keep_overlays: bool = False) -> Callable[..., Array]:
    """(image, constants, generator) to grey levels."""
    if name == "frost":
        return functools.partial(frost, folder=folder, small=SMALL[constants], keep=keep_overlays)
    if name == "elastic_transform":
        return functools.partial(elastic_transform, small=SMALL[constants])
    found: Callable[..., Array] = globals()[name]
    return found


def corrupt(
    images: Array, name: str, severity: int, constants: str, *, folder: Path, seed: int = 0, keep_overlays: bool = False
) -> tuple[Array, float]:
    """N×H×W×3 uint8 images, one after the other, and the seconds they took."""
    make, numbers = function(name, constants, folder=folder, keep_overlays=keep_overlays), CONSTANTS[constants][name]
    rng = np.random.default_rng([seed, severity, *name.encode()])
    began = time.perf_counter()
    made = [as_bytes(make(image, numbers[severity - 1], rng)) for image in images]
    return np.stack(made), time.perf_counter() - began
