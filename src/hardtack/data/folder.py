"""Class folders of image files: `folder:PATH`, either directly or below train/val/test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import datasets
from hardtack.data.decode import read_file
from hardtack.data.paths import find_path
from hardtack.data.source import SPLIT_WORDS, WHOLE, Splits, Stored

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}


class FolderImages:
    """Image files, opened when they are read."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> np.ndarray:
        return read_file(self.files[index], str(self.files[index]))

    def encoded(self, index: int) -> bytes:
        return self.files[index].read_bytes()

    def where(self, index: int) -> str:
        return str(self.files[index])


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _images(path: Path) -> list[Path]:
    files = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith("."))
    return sorted(file for file in files if file.is_file())


def _class_folders(path: Path) -> list[Path]:
    """The class folders in `path`, or an explanation of what is wrong with the layout."""
    folders = _folders(path)
    wanted = "expected one folder per class with its images inside (PATH/cat/1.jpg, PATH/dog/2.jpg)"
    if not folders:
        loose = sum(file.suffix.lower() in SUFFIXES for file in path.iterdir())
        contents = f"{loose} images directly in it and no class folders" if loose else "neither folders nor images"
        raise UserError(f"{path} has {contents}; {wanted}")
    if not any(_images(folder) for folder in folders):
        raise UserError(f"{path}: none of its {len(folders)} folders holds an image ({', '.join(sorted(SUFFIXES))})")
    return folders


def _stored(path: Path, classes: tuple[str, ...]) -> Stored:
    files: list[Path] = []
    labels: list[int] = []
    for folder in _class_folders(path):
        if folder.name not in classes:
            hint = did_you_mean(folder.name, classes)
            raise UserError(f"{folder} is not a class of the training folder{hint}; its folders name the classes")
        images = _images(folder)
        files += images
        labels += [classes.index(folder.name)] * len(images)
    return Stored(FolderImages(files), torch.tensor(labels, dtype=torch.int64), classes)


@datasets.register(
    "folder", path="PATH", help="folder:PATH: one folder per class, directly or below train/, val/, test/"
)
def read_folder(config: DataConfig, path: str) -> Splits:
    root = find_path(path, config.root, kind="folder")
    if not root.is_dir():
        raise UserError(f"folder: {root} is a file; name the folder that holds the class folders")
    splits = {SPLIT_WORDS[f.name.lower()]: f for f in _folders(root) if f.name.lower() in SPLIT_WORDS and _folders(f)}
    if not splits:
        classes = tuple(folder.name for folder in _class_folders(root))
        return {WHOLE: lambda: _stored(root, classes)}
    naming = splits.get("train") or next(iter(splits.values()))
    classes = tuple(folder.name for folder in _class_folders(naming))
    return {name: (lambda where=where: _stored(where, classes)) for name, where in splits.items()}  # type: ignore[misc]
