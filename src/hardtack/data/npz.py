"""Images in numpy's own archive: `npz:PATH`, 8-bit or floating point in [0,1], channels first or last."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hardtack.base import limits
from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.paths import find_place, path_files
from hardtack.data.remote import local_file
from hardtack.data.source import WHOLE, Splits, Stored, integer_labels, numbered_classes

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

_PLAIN = (("images", "labels"), ("x", "y"), ("images", "y"), ("x", "labels"))
_WORDS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}
_TOLERANCE = 1e-6


def _find_pairs(keys: list[str]) -> dict[str, tuple[str, str]]:
    for images, labels in _PLAIN:
        if images in keys and labels in keys:
            return {WHOLE: (images, labels)}
    pairs: dict[str, tuple[str, str]] = {}
    for split, words in _WORDS.items():
        for word in words:
            for images, labels in (("x", "y"), ("images", "labels")):
                for pair in (
                    (f"{images}_{word}", f"{labels}_{word}"),
                    (f"{word}_{images}", f"{word}_{labels}"),
                ):
                    if pair[0] in keys and pair[1] in keys:
                        pairs.setdefault(split, pair)
    return pairs


def to_images(array: np.ndarray, where: str) -> Tensor:
    """N×H×W, N×H×W×C or N×C×H×W (C 1 or 3) as N×3×H×W; floats stay floats and must lie in [0,1]."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4:
        raise UserError(f"{where}: images must have 3 or 4 axes, found shape {array.shape}")
    if array.shape[-1] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.shape[1] not in (1, 3):
        raise UserError(f"{where}: neither the last nor the second axis of shape {array.shape} has 1 or 3 channels")
    if array.dtype.kind == "f":
        if len(array) and not (array.min() >= -_TOLERANCE and array.max() <= 1 + _TOLERANCE):  # NaN fails too
            raise UserError(
                f"{where}: floating-point images must lie in [0,1] without NaN; divide values of 0 … 255 by 255"
            )
        images = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).clamp(0, 1)
    elif array.dtype == np.uint8:
        images = torch.from_numpy(np.ascontiguousarray(array))
    else:
        raise UserError(f"{where}: images must be uint8 or floating point in [0,1], found {array.dtype}")
    return images.expand(-1, 3, -1, -1)


def _array(path: Path, key: str) -> np.ndarray:
    try:
        return limits.read_npz(path, [key])[key]
    except UserError:
        raise
    except (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: '{key}' cannot be read without running code ({error}); save plain arrays") from None


@datasets.register(
    "npz",
    path="PATH",
    files=path_files,
    help="npz:PATH: arrays images+labels (or x, y), or x_train, y_train, x_test, y_test",
)
def read_npz(config: DataConfig, path: str) -> Splits:
    file = local_file(find_place(path, config.root, kind="npz"))
    try:
        with zipfile.ZipFile(file) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} is not an .npz archive: {error}") from None
    pairs = _find_pairs(keys)
    if not pairs:
        raise UserError(
            f"{file} holds {', '.join(keys) or 'nothing'}; expected images+labels, x+y, or x_train+y_train …"
        )
    labels = {split: integer_labels(_array(file, pair[1]), f"{file}:{pair[1]}") for split, pair in pairs.items()}
    classes = numbered_classes(*labels.values())
    if "classes" in keys:
        classes = tuple(str(name) for name in _array(file, "classes"))

    def opener(split: str) -> Stored:
        key = pairs[split][0]
        images = to_images(_array(file, key), f"{file}:{key}")
        if len(images) != len(labels[split]):
            raise UserError(f"{file}: {len(images)} images in '{key}' but {len(labels[split])} labels")
        return Stored(images, labels[split], classes)

    return {split: (lambda split=split: opener(split)) for split in pairs}  # type: ignore[misc]
