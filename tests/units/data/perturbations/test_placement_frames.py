"""Translate, rotate, scale and zoom blur against torchvision on Pillow images, one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from hardtack.data.perturbations import sequence
from hardtack.data.perturbations.canvas import on_canvas

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
STEPS = {
    ("translate", "cifar"): [{"translate": [i - 7, 0], "interpolation": NEAREST} for i in range(16)],
    ("translate", "imagenet"): [{"translate": [i - 20, 0], "interpolation": NEAREST} for i in range(41)],
    ("rotate", "cifar"): [{"angle": i - 15} for i in range(31)],
    ("rotate", "imagenet"): [{"angle": i - 15} for i in range(31)],
    ("scale", "cifar"): [{"scale": (i * 2 + 70) / 100} for i in range(31)],
    ("scale", "imagenet"): [{"scale": (i * 2.5 + 40) / 100} for i in range(31)],
}


def around(image, constants):
    """What the published script moves: the image, or the photograph that it is the middle of; here its mirror."""
    if constants == "cifar":
        return image
    rows, columns = (round(side / 14) for side in image.shape[:2])
    return np.pad(image, ((rows, rows), (columns, columns), (0, 0)), mode="reflect")


def moved(image, size, **how):
    """torchvision's affine about the centre it had in 2018, and the middle of that."""
    height, width = image.shape[:2]
    plain = {"angle": 0, "translate": [0, 0], "scale": 1.0, "shear": [0.0], "interpolation": BILINEAR}
    made = TF.affine(Image.fromarray(image), **plain | how, center=[width * 0.5 + 0.5, height * 0.5 + 0.5])
    return np.array(TF.center_crop(made, list(size)))


@pytest.mark.parametrize(("name", "constants"), list(STEPS))
def test_as_torchvision_and_pillow(name, constants):
    x = pictures(2, 32, 56)
    frames = list(sequence(x, torch.arange(2), name, constants=constants))
    assert len(frames) == len(STEPS[name, constants])
    for frame, how in zip(frames, STEPS[name, constants], strict=True):
        for made, image in zip(arrays(frame), arrays(x), strict=True):
            expected = moved(around(image, constants), (32, 56), **how)
            assert np.array_equal(made, expected), how


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_zoom_blur_is_a_running_mean_of_enlargements(constants):
    x = pictures(2, 32, 32)
    x[0, :, :8] = 200 / 255  # flat parts, where float32 falls just below a grey level
    frames = list(sequence(x, torch.arange(2), "zoom_blur", constants=constants))
    for place, image in enumerate(arrays(x)):
        mean = TF.to_tensor(image)
        assert np.array_equal(arrays(frames[0])[place], image)
        for number in range(1, 31):
            mean += TF.to_tensor(moved(around(image, constants), (32, 32), scale=1 + 0.004 * number))
            expected = np.array(TF.to_pil_image(mean / (number + 1)))
            assert np.array_equal(arrays(frames[number])[place], expected)


def test_a_photograph_of_256_pixels_is_imagined_around_224():
    canvas = on_canvas(torch.zeros(1, 3, 224, 224), "imagenet")
    assert canvas.size == (256, 256) and (canvas.top, canvas.left) == (16, 16)


def test_only_what_comes_from_beyond_is_black_or_mirrored():
    x = torch.full((1, 3, 28, 28), 1.0)
    left_by_seven = next(sequence(x, torch.arange(1), "translate", constants="cifar"))
    assert left_by_seven[..., :21].min() == 1 and left_by_seven[..., 21:].max() == 0
    left_by_twenty = next(sequence(x, torch.arange(1), "translate", constants="imagenet"))
    assert left_by_twenty[..., :10].min() == 1 and left_by_twenty[..., 10:].max() == 0  # 2 of 28 pixels are mirrored
