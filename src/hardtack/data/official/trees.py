"""Folders of image files as the official sets have them: listed by one look at each folder, labelled by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hardtack.base.errors import UserError
from hardtack.data.decode import open_image
from hardtack.data.folder import SUFFIXES, FolderImages
from hardtack.data.official.kinds import GROUPS
from hardtack.data.official.synsets import class_index, synsets

TINY_CLASSES = 200
_SYNSET = re.compile(r"n\d{8}")


class SquareImages(FolderImages):
    """Image files that must be side×side as they are stored."""

    def __init__(self, files: list[Path], side: int, title: str) -> None:
        super().__init__(files)
        self.side, self.title = side, title

    def read(self, index: int) -> np.ndarray:
        image = super().read(index)
        self.require(image.shape[1], image.shape[0], index)
        return image

    def require(self, width: int, height: int, index: int) -> None:
        if (width, height) != (self.side, self.side):
            raise UserError(
                f"{self.files[index]} is {width}×{height}, but every image of {self.title} is {self.side}×{self.side} "
                "and is used as stored: take the distributed files, or open your own as corrupted:PATH/TYPE/SEVERITY"
            )


def is_synset(name: str) -> bool:
    return _SYNSET.fullmatch(name) is not None


def subfolders(path: Path) -> list[str]:
    """Names of the folders in `path`, sorted, hidden ones left out; none where `path` is no folder."""
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__")))


def files_in(path: Path, suffixes: Iterable[str] = SUFFIXES) -> list[Path]:
    """The files of `path` with one of the endings, sorted by name."""
    endings = tuple(suffixes)
    with os.scandir(path) as entries:
        # the entry knows what it is: asking for each of 50,000 files is slow on a network disk
        file_names = (entry.name for entry in entries if entry.name.lower().endswith(endings) and entry.is_file())
        return [path / name for name in sorted(file_names) if not name.startswith(".")]


def type_folders(location: Path, types: Iterable[str]) -> dict[str, Path]:
    """The folders named as types, in the order of `types`, directly in `location` or in a group (`noise/` …)."""
    folders: dict[str, Path] = {}
    for place in (location, *(location / group for group in GROUPS)):
        there = set(subfolders(place))
        for name in (name for name in types if name in there):
            if name in folders:
                raise UserError(f"{location} has '{name}' twice: {folders[name]} and {place / name}; remove one")
            folders[name] = place / name
    return {name: folders[name] for name in types if name in folders}


def labels_of(names: list[str], rule: str, where: Path) -> tuple[tuple[str, ...], dict[str, int]]:
    """(classes, label of each folder name): `imagenet` by the 1000 synsets, `tiny` and `own` by sorted names."""
    if rule == "imagenet":
        unknown = [name for name in names if name not in class_index()]
        if unknown:
            raise UserError(
                f"{where}: {_some(unknown)} of its {len(names)} class folders are not among ImageNet's 1000 synsets "
                "(n01440764 …); expected one folder per synset; remove what does not belong, or open images of other "
                "classes as corrupted:PATH/TYPE/SEVERITY, labels by sorted names"
            )
        return synsets(), {name: class_index()[name] for name in names}
    if rule == "tiny" and (len(names) != TINY_CLASSES or not all(map(is_synset, names))):
        raise UserError(
            f"{where} has {len(names)} class folders; Tiny-ImageNet has {TINY_CLASSES} synsets, and as labels follow "
            "from their sorted names, none may be missing or added: extract the archive again"
        )
    return tuple(names), {name: label for label, name in enumerate(names)}


def list_images(
    folder: Path, labels: Mapping[str, int], suffixes: Iterable[str] = SUFFIXES
) -> tuple[list[Path], list[int]]:
    """(files, label of each) of the class folders in `folder`, by label and then by name."""
    files: list[Path] = []
    values: list[int] = []
    for name in sorted(labels, key=lambda name: labels[name]):
        here = files_in(folder / name, suffixes)
        files += here
        values += [labels[name]] * len(here)
    return files, values


def size_of(file: Path) -> tuple[int, int]:
    """(width, height) of an image file, from its header."""
    try:
        with open_image(file, str(file)) as image:
            return image.size
    except Exception as error:  # Pillow raises whatever its decoders met
        raise UserError(f"cannot read the image {file}: {' '.join(str(error).split())}") from None


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
