"""Tilt: the image as a board that turns about both of its axes, seen in perspective."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.parts import in_parts
from hardtack.data.perturbations.canvas import Canvas, on_canvas, take

_DEGREES: dict[Constants, float] = {"cifar": 0.75, "imagenet": 1}  # from frame to frame, about each axis
_STEPS = 32  # OpenCV's places between two pixels


def tilt(x: Tensor, keys: Tensor, constants: Constants, frames: int) -> Iterator[Tensor]:
    """Turned about the upright and the level axis at once, from −11.25 to 11.25 degrees (ImageNet-P: −15 to 15).

    The published projection with OpenCV's bilinear interpolation in whole numbers (places rounded to 1/32 of a pixel,
    as it was then); nothing is random. Beyond the image lies what `canvas` says; its edge fades into black.
    """
    canvas = on_canvas(x, constants)
    for number in range(frames):
        yield _project(canvas, projection(canvas.size, (number - frames // 2) * _DEGREES[constants]))


def projection(size: tuple[int, int], degrees: float) -> np.ndarray:
    """3×3: (column, row, 1) of the flat image to that of the tilted one, as homogeneous coordinates.

    The eye is as far away as the diagonal is long; the board stands a pixel behind the axes, so that it is a little
    smaller than the image even where it does not tilt.
    """
    height, width = size
    distance, angle = math.hypot(height, width), math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    board = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]])
    about_level = np.array([[1, 0, 0, 0], [0, cosine, -sine, 0], [0, sine, cosine, 0], [0, 0, 0, 1]])
    about_upright = np.array([[cosine, 0, -sine, 0], [0, 1, 0, 0], [sine, 0, cosine, 0], [0, 0, 0, 1]])
    away = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, distance], [0, 0, 0, 1]])
    seen = np.array([[distance, 0, width / 2, 0], [0, distance, height / 2, 0], [0, 0, 1, 0]])
    return seen @ away @ about_level @ about_upright @ board


def _project(canvas: Canvas, matrix: np.ndarray) -> Tensor:
    """N×3×H×W: the image's window after the map, black beyond the canvas, to the nearest grey level; over 255."""
    (height, width), device = canvas.size, canvas.levels.device
    rows, columns = canvas.window
    across, down, depth = (a * columns + b * rows + c for a, b, c in np.linalg.inv(matrix).tolist())
    column, row = ((place * (_STEPS / depth)).round().long() for place in (across, down))
    column_part, row_part = column % _STEPS, row % _STEPS
    corners = []
    for below in (0, 1):
        for beside in (0, 1):
            at_row, at_column = row // _STEPS + below, column // _STEPS + beside
            inside = (at_row >= 0) & (at_row < height) & (at_column >= 0) & (at_column < width)
            weight = (row_part if below else _STEPS - row_part) * (column_part if beside else _STEPS - column_part)
            place = at_row.clamp(0, height - 1) * width + at_column.clamp(0, width - 1)
            corners.append((place.to(device), (weight * inside).float().to(device)))

    def make(levels: Tensor) -> Tensor:
        # whole numbers below 2²⁴: float32 holds every sum
        total = sum((take(levels, place) * weight for place, weight in corners), start=torch.zeros(()))
        return ((total + _STEPS**2 / 2) / _STEPS**2).floor() / 255

    return in_parts(make, canvas.levels)
