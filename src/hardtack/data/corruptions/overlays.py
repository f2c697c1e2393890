"""Frost's overlays: the photographs of a folder, or drawn ice where none is given.

The photographs that ImageNet-C and CIFAR-10-C were made with are six files, frost1.png … frost6.jpg, in the
repository of Hendrycks and Dietterich 2019. They are not part of this package.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base.errors import UserError
from hardtack.data.corruptions.ice import draw_ice
from hardtack.data.decode import open_image

PICKED = 5
"""Six were published; the original draws one of the first five."""
_SUFFIXES = (".png", ".jpg", ".jpeg")
_PUBLISHED = (
    "c146cff9eab2397f71c47ee7c727e2f8a36cf7445b8daf1dad63a0ce34140861"  # SHA-256 of the five files, one after another
)

Source = Literal["published overlays", "other overlays", "procedural overlays"]


def frost_source(folder: Path | None) -> Source:
    """Which overlays `frost` uses with this folder; a result with frost in it has to say so."""
    if folder is None:
        return "procedural overlays"
    return "published overlays" if _digest(folder) == _PUBLISHED else "other overlays"


@dataclass(frozen=True)
class Overlays:
    """Pictures of several sizes in one table, pixel after pixel: `pixels` int32 (red + 256·green + 256²·blue)."""

    pixels: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor

    def pieces(self, chosen: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
        """N×3×height×width float32 grey levels, from row `top` and column `left` of the chosen overlays (N each)."""
        stride = self.widths[chosen]
        corner = self.starts[chosen] + top * stride + left
        row = torch.arange(height, device=corner.device)[:, None] * stride[:, None, None]
        place = (corner[:, None, None] + row) + torch.arange(width, device=corner.device)
        packed = self.pixels[place]
        return torch.stack([packed & 255, (packed >> 8) & 255, packed >> 16], dim=1).float()


@lru_cache(maxsize=16)
def stack_overlays(folder: Path | None, step: int, size: tuple[int, int], device: torch.device) -> Overlays:
    """The overlays to pick from, every `step`-th pixel of them, each larger than `size` (height, width)."""
    pictures = [_larger_than(picture[step // 2 :: step, step // 2 :: step], size) for picture in _pictures(folder)]
    flat = [picture.reshape(-1, 3).astype(np.int32) @ np.array([1, 256, 256**2], np.int32) for picture in pictures]
    starts = np.cumsum([0, *(len(pixels) for pixels in flat[:-1])])
    return Overlays(
        pixels=torch.from_numpy(np.concatenate(flat)).to(device),
        starts=torch.from_numpy(starts).to(device),
        heights=torch.tensor([picture.shape[0] for picture in pictures], device=device),
        widths=torch.tensor([picture.shape[1] for picture in pictures], device=device),
    )


@lru_cache(maxsize=4)
def _pictures(folder: Path | None) -> list[np.ndarray]:
    """H×W×3 uint8 each, red first."""
    if folder is None:
        return draw_ice(PICKED)
    return [np.asarray(open_image(file, str(file)).convert("RGB")) for file in _files(folder)]


def _files(folder: Path) -> list[Path]:
    files = []
    for number in range(1, PICKED + 1):
        names = [f"frost{number}{suffix}" for suffix in _SUFFIXES]
        file = next((folder / name for name in names if (folder / name).is_file()), None)
        if file is None:
            what = "folder" if folder.is_dir() else "there is no such folder, so"
            raise UserError(f"frost: {folder}: {what} no {' or '.join(names)}")
        files.append(file)
    return files


@lru_cache(maxsize=4)
def _digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in _files(folder))).hexdigest()


def _larger_than(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The picture, enlarged (bilinear) as little as it takes to leave the image room to move by a pixel."""
    factor = max((size[0] + 1) / picture.shape[0], (size[1] + 1) / picture.shape[1])
    if factor <= 1:
        return picture
    large = [math.ceil(side * factor) for side in picture.shape[:2]]
    pixels = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None].float()
    return F.interpolate(pixels, size=large, mode="bilinear")[0].permute(1, 2, 0).round().to(torch.uint8).numpy()
