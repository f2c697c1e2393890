"""Class folders of image files: `folder:PATH`, either directly or below train/val/test; PATH may be a URL.

`data.test_list` chooses the test images by a list of files (`file_list`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import datasets
from hardtack.data.decode import read_file
from hardtack.data.file_list import SUFFIXES, FileList, choose_files, read_file_list
from hardtack.data.path_column import PathColumn
from hardtack.data.paths import find_path, find_place, path_files
from hardtack.data.remote import Place, RemotePath, local_file
from hardtack.data.remote.images import RemoteImages
from hardtack.data.source import SPLIT_WORDS, WHOLE, Splits, Stored

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig


_LISTED = 8  # class folders that are listed at the same time


class FolderImages:
    """Image files, opened when they are read."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = PathColumn(files)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> np.ndarray:
        return read_file(self.files[index], str(self.files[index]))

    def encoded(self, index: int) -> bytes:
        return self.files[index].read_bytes()

    def where(self, index: int) -> str:
        return str(self.files[index])


def _image_files(root: Place, files: Iterable[Any]) -> FolderImages | RemoteImages:
    return RemoteImages(root, list(files)) if isinstance(root, RemotePath) else FolderImages(files)


def _folders(path: Any) -> list[Any]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _images(path: Any) -> list[Any]:
    files = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith("."))
    return sorted(file for file in files if file.is_file())


def _class_folders(path: Any) -> list[Any]:
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


def _stored(path: Place, classes: tuple[str, ...]) -> Stored:
    folders = _class_folders(path)
    for folder in folders:
        if folder.name not in classes:
            hint = did_you_mean(folder.name, classes)
            raise UserError(f"{folder} is not a class of the training folder{hint}; its folders name the classes")
    numbers = {name: number for number, name in enumerate(classes)}
    labels: list[torch.Tensor] = []

    def files() -> Iterator[Any]:
        for folder, images in _listed_folders(folders):
            labels.append(torch.full((len(images),), numbers[folder.name], dtype=torch.int64))
            yield from images

    images = _image_files(path, files())
    return Stored(images, torch.cat(labels), classes, remote=isinstance(path, RemotePath))


def _listed_folders(folders: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each folder and its images, a few folders ahead: listings of a network disk or a remote store take their time."""
    with ThreadPoolExecutor(max_workers=_LISTED) as pool:
        for start in range(0, len(folders), _LISTED):
            part = folders[start : start + _LISTED]
            yield from zip(part, pool.map(_images, part), strict=True)


def _listed(path: Place, classes: tuple[str, ...], listed: FileList) -> Stored:
    """The images of a list, in its order."""
    files, labels = choose_files(listed, path, _images(path), classes)
    return Stored(
        _image_files(path, files), torch.tensor(labels, dtype=torch.int64), classes, note=listed.note,
        remote=isinstance(path, RemotePath),
    )  # fmt: skip


def _without(stored: Stored, listed: FileList, path: Place) -> Stored:
    """All images but those of a list: what is left for training in a set without splits."""
    images, note = stored.images, f"without {listed.note}"
    assert isinstance(images, FolderImages | RemoteImages)
    taken = {str(path / entry.path) for entry in listed.files}
    kept = [place for place in range(len(images)) if images.where(place) not in taken]
    rest: FolderImages | RemoteImages
    if isinstance(images, RemoteImages):
        rest = images.subset(kept)
    else:
        rest = FolderImages(images.files[place] for place in kept)
    return dataclasses.replace(stored, images=rest, labels=stored.labels[kept], note=note)


@datasets.register(
    "folder",
    path="PATH",
    files=path_files,
    help="folder:PATH: one folder per class, directly or below train/, val/, test/",
)
def read_folder(config: DataConfig, path: str) -> Splits:
    root = find_place(path, config.root, kind="folder")
    if isinstance(root, RemotePath):
        root.check_listable()
    if not root.is_dir():
        raise UserError(f"folder: {root} is a file; name the folder that holds the class folders")
    listed = None
    if config.test_list is not None:
        listed = read_file_list(local_file(find_place(config.test_list, config.root, kind="data.test_list")))
    named = {SPLIT_WORDS[f.name.lower()]: f for f in _folders(root) if f.name.lower() in SPLIT_WORDS}
    splits = {name: folder for name, folder in named.items() if _is_split(name, folder, listed)}
    if not splits:
        classes = tuple(folder.name for folder in _class_folders(root))
        if listed is None:
            return {WHOLE: lambda: _stored(root, classes)}
        return {
            "train": lambda: _without(_stored(root, classes), listed, root),
            "test": lambda: _listed(root, classes, listed),
        }
    naming = splits.get("train") or next(iter(splits.values()))
    classes = tuple(folder.name for folder in _class_folders(naming))
    opened: Splits = {name: functools.partial(_stored, where, classes) for name, where in splits.items()}
    if listed is not None:
        name = next((name for name in ("test", "validation") if name in splits), None)
        if name is None:
            raise UserError(f"folder: {root} has no test or validation images that data.test_list could choose from")
        opened[name] = functools.partial(_listed, splits[name], classes, listed)
    return opened


def _is_split(name: str, folder: Place, listed: FileList | None) -> bool:
    """Whether a folder named train, val, … is a split; a list has the labels of images without class folders."""
    return bool(_folders(folder)) or (listed is not None and name != "train")


def holds_files(config: DataConfig, source: Path) -> bool:
    """Whether the data is a folder whose test images include all files of this list."""
    word, _, path = config.name.partition(":")
    if word != "folder":
        return False
    try:
        splits = read_folder(dataclasses.replace(config, test_list=str(source.resolve())), path)
        splits["test" if "test" in splits else "validation"]()
    except UserError:
        return False
    return True


def find_test_list(config: DataConfig | None, name: str, *, given: bool) -> Path | None:
    """The list `name` for this data: a `given` one must exist; another is used only if all of its files are there."""
    if config is None or config.test_list is not None:
        return None
    try:
        place = find_path(name, config.root, kind="test_list")
    except UserError:
        if given:
            raise
        return None
    return place if given or holds_files(config, place) else None
