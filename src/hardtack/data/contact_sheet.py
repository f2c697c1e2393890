"""A contact sheet: the first image of a data set, one row for each corruption type, one column for each severity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hardtack.base.files import atomic

_GAP = 8  # pixels between two tiles
_MARGIN = 150  # pixels for the names of the types
_TOP = 24  # pixels for the severities


def write_contact_sheet(
    path: Path,
    clean: np.ndarray,
    *,
    types: Sequence[str],
    severities: Sequence[int],
    corrupted: Callable[[str, int], np.ndarray],
) -> Path:
    """`clean` is the image H×W×3 uint8; `corrupted(type, severity)` gives the same image corrupted."""
    height, width, _ = clean.shape
    scale = max(1, 96 // max(height, width))
    tile = (width * scale, height * scale)
    size = (_MARGIN + (tile[0] + _GAP) * (len(severities) + 1), (tile[1] + _GAP) * len(types) + _TOP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(["clean", *map(str, severities)]):
        draw.text((_MARGIN + column * (tile[0] + _GAP), 6), title, fill="black")
    for row, type_ in enumerate(types):
        top = _TOP + row * (tile[1] + _GAP)
        draw.text((6, top + tile[1] // 2 - 6), type_.replace("_", " "), fill="black")
        for column, pixels in enumerate([clean, *(corrupted(type_, severity) for severity in severities)]):
            picture = Image.fromarray(pixels).resize(tile, Image.Resampling.NEAREST)
            sheet.paste(picture, (_MARGIN + column * (tile[0] + _GAP), top))
    with atomic(path) as file:
        sheet.save(file, format="PNG")
    return path
