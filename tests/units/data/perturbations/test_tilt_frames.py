"""Tilt against a literal loop over pixels with OpenCV's whole-number arithmetic, and against the geometry itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import map_coordinates

from hardtack.data.perturbations import sequence
from hardtack.data.perturbations.tilt import projection


def seen_from(size, degrees, column, row):
    """Where a point of the board is seen: turned about the upright, then about the level axis, then projected."""
    height, width = size
    eye, angle = np.sqrt(height**2 + width**2), np.deg2rad(degrees)
    x, y, z = column - width / 2, row - height / 2, 1.0
    x, z = x * np.cos(angle) - z * np.sin(angle), x * np.sin(angle) + z * np.cos(angle)
    y, z = y * np.cos(angle) - z * np.sin(angle), y * np.sin(angle) + z * np.cos(angle)
    return eye * x / (z + eye) + width / 2, eye * y / (z + eye) + height / 2


@pytest.mark.parametrize("degrees", [-15, -3.75, 0, 11.25])
def test_the_projection(degrees):
    size = (24, 40)
    for column, row in ((0, 0), (40, 0), (13.5, 20), (39, 23)):
        across, down, depth = projection(size, degrees) @ [column, row, 1]
        assert (across / depth, down / depth) == pytest.approx(seen_from(size, degrees, column, row))


def literal(image, matrix):
    """cv2.warpPerspective of H×W×3 uint8: places to 1/32 of a pixel, weights in whole numbers, black beyond."""
    height, width = image.shape[:2]
    inverse = np.linalg.inv(matrix)
    out = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            across, down, depth = inverse @ [x, y, 1]
            column, row = round(across * 32 / depth), round(down * 32 / depth)
            total = np.zeros(3, dtype=int)
            for below in (0, 1):
                for beside in (0, 1):
                    at = (row >> 5) + below, (column >> 5) + beside
                    weight = ((row & 31) if below else 32 - (row & 31)) * (
                        (column & 31) if beside else 32 - (column & 31)
                    )
                    if 0 <= at[0] < height and 0 <= at[1] < width:
                        total += weight * 32 * image[at].astype(int)
            out[y, x] = (total + (1 << 14)) >> 15
    return out


@pytest.mark.parametrize(("constants", "step", "margin"), [("cifar", 0.75, 0), ("imagenet", 1, 2)])
def test_as_opencv(constants, step, margin):
    x = pictures(1, 28, 28)
    canvas = np.pad(arrays(x)[0], ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    frames = list(sequence(x, torch.arange(1), "tilt", constants=constants))
    assert len(frames) == 31
    for number in (0, 9, 15, 30):
        expected = literal(canvas, projection(canvas.shape[:2], step * (number - 15)))
        assert np.array_equal(arrays(frames[number])[0], expected[margin : margin + 28, margin : margin + 28])


def test_close_to_exact_interpolation():
    x = pictures(1, 32, 32)
    made = arrays(list(sequence(x, torch.arange(1), "tilt"))[4])[0].astype(float)
    inverse = np.linalg.inv(projection((32, 32), 0.75 * (4 - 15)))
    rows, columns = np.mgrid[:32, :32]
    across, down, depth = np.einsum("ij,jhw->ihw", inverse, np.stack([columns, rows, np.ones_like(rows)]))
    for channel in range(3):
        image = arrays(x)[0, :, :, channel].astype(float)
        exact = map_coordinates(image, [down / depth, across / depth], order=1, mode="grid-constant")
        assert np.abs(made[..., channel] - exact).max() < 6 and np.abs(made[..., channel] - exact).mean() < 0.7


def test_the_middle_frame_is_a_little_smaller():
    """The published board stands a pixel behind the axes: 45.25 / 46.25 of its size for 32 pixels."""
    x = torch.ones(1, 3, 32, 32)
    middle = list(sequence(x, torch.arange(1), "tilt"))[15]
    assert 0 < middle[0, 0, 16, 0] < 1 and middle[0, 0, 1:31, 1:31].min() == 1
