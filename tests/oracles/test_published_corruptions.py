"""Noises and blurs beside the libraries that the published scripts call: `pytest -m oracle`.

Needs `pip install wand` with ImageMagick's MagickWand library, `scikit-image` and `opencv-python-headless`; each test
skips where its library is missing.
"""

from __future__ import annotations

import ctypes
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from hardtack.data.corruptions import blur, filters, motion, noise

pytestmark = pytest.mark.oracle


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """H×W×3 uint8: texture on a slope, and a white corner."""
    rng = np.random.default_rng(seed)
    slope = np.linspace(0, 160, width)[None, :, None] + np.linspace(0, 60, height)[:, None, None]
    image = slope + rng.integers(0, 30, (height, width, 3))
    image[: height // 3, : width // 3] = 255
    return image.astype(np.uint8)


def batch(image: np.ndarray) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255


def image_of(x: Tensor) -> np.ndarray:
    return (x[0] * 255).round().permute(1, 2, 0).numpy().astype(int)


def imagemagick(image: np.ndarray, radius: float, sigma: float, angle: float) -> np.ndarray:
    """H×W×3 or H×W uint8. The 16-bit pixels are read, not a PNG file, since some releases' writer cuts, not rounds."""
    wand_image = pytest.importorskip("wand.image", exc_type=ImportError)
    from wand.api import library

    library.MagickMotionBlurImage.argtypes = (ctypes.c_void_p, ctypes.c_double, ctypes.c_double, ctypes.c_double)
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    with wand_image.Image(blob=file.getvalue()) as magick:
        assert magick.depth == 8
        library.MagickMotionBlurImage(magick.wand, radius, sigma, angle)
        pixels = magick.export_pixels(channel_map="RGB", storage="short")
    return np.floor(np.array(pixels).reshape(*image.shape[:2], 3) / 257 + 0.5).astype(int)


@pytest.mark.parametrize("angle", [0, 30, -30, 45, -45, 90, -90, -135, 180, 17.3, -61.7, -44.1, 3.2])
@pytest.mark.parametrize(("radius", "sigma"), [(6, 1), (9, 2.5), (20, 15), (12, 12)])
def test_motion_blur_is_imagemagicks(radius, sigma, angle):
    for image in (picture(32, 32), picture(17, 31), np.repeat(picture(32, 32)[..., :1], 3, axis=2)):
        expected = imagemagick(image, radius, sigma, angle)
        made = image_of(motion.blur_along(batch(image), torch.tensor([angle], dtype=torch.float64), radius, sigma))
        assert np.abs(made - expected).max() <= 1
        assert (made != expected).mean() < 0.001
    layer = picture(32, 32)[..., 0]  # one channel, as snow has it
    made = motion.blur_along(batch(layer[..., None]), torch.tensor([angle], dtype=torch.float64), radius, sigma)
    assert (image_of(made)[..., 0] != imagemagick(layer, radius, sigma, angle)[..., 0]).mean() < 0.001


@pytest.mark.parametrize("sigma", [0.05, 0.25, 0.4, 0.7, 1, 1.5, 6])
def test_gaussian_is_scikit_images(sigma):
    gaussian = pytest.importorskip("skimage.filters").gaussian
    image = picture(37, 50) / 255.0
    made = filters.gaussian_filter(torch.from_numpy(image).permute(2, 0, 1), sigma).permute(1, 2, 0).numpy()
    assert np.array_equal(made, gaussian(image, sigma=sigma, channel_axis=-1))


def published_disc(cv2, radius: float, sigma: float) -> np.ndarray:
    reach, side = (8, 3) if radius <= 8 else (radius, 5)
    place = np.arange(-reach, reach + 1)
    disc = np.array(place[:, None] ** 2 + place**2 <= radius**2, dtype=np.float32)
    return cv2.GaussianBlur(disc / disc.sum(), ksize=(side, side), sigmaX=sigma)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_defocus_blur_is_opencvs(constants, severity):
    cv2 = pytest.importorskip("cv2")
    image = picture(32, 45)
    kernel = published_disc(cv2, *blur._DEFOCUS[constants][severity - 1])
    planes = [cv2.filter2D(np.ascontiguousarray(image[..., c] / 255.0), -1, kernel) for c in range(3)]
    expected = np.uint8(np.clip(np.stack(planes, axis=-1), 0, 1) * 255).astype(int)
    made = image_of(blur.defocus_blur(batch(image), torch.zeros(1), severity, constants))
    assert (made != expected).mean() < 0.001  # OpenCV's kernel has other last bits where it fuses multiplications


def test_impulse_noise_is_scikit_images():
    random_noise = pytest.importorskip("skimage.util").random_noise
    image = np.full((200, 200, 3), 100 / 255)
    theirs = random_noise(image, mode="s&p", amount=0.27, rng=0)
    ours = noise.impulse_noise(torch.full((40, 3, 32, 32), 100 / 255), torch.arange(40), 5, "imagenet").numpy()
    for value in (0, 1):
        assert abs((theirs == value).mean() - (ours == value).mean()) < 0.005
    struck = [(theirs != 100 / 255).all(axis=2).mean(), (ours != np.float32(100 / 255)).all(axis=1).mean()]
    assert abs(struck[0] - struck[1]) < 0.004  # pixels that lost all three channels: 0.27³
