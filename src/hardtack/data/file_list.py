"""The test images of a folder by a list: `data.test_list=FILE`, one path per line, relative to the folder.

RobustBench's 5,000 images of ImageNet are such a list (`n03028079/ILSVRC2012_val_00044610.JPEG`). A line may end with
a label after a tab or a space: the name or number of a class, needed where the images lie in no class folders.
A list chooses among the images that the folder reader finds, so that it can name no file outside of the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hardtack.base import limits
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import shorten
from hardtack.data.remote import Place

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_SHOWN = 3  # missing files that a message names


class ListedFile(NamedTuple):
    """A line of a list: a path relative to the folder, with `/`, and the label as it is written."""

    line: int
    path: str
    label: str | None


class FileList(NamedTuple):
    """A list that was read. `digest` is of its text."""

    source: Path
    files: tuple[ListedFile, ...]
    digest: str

    @property
    def note(self) -> str:
        """For the description of the data, which every result has."""
        return f"the {len(self.files)} images of the list {shorten(self.source.name)} (sha256 {self.digest})"


def read_file_list(source: Path) -> FileList:
    """The lines of a list; empty ones and those that begin with `#` are left out. A path that leads out is refused."""
    if not source.is_file():
        raise UserError(f"data.test_list: {source} is no file; name a text file with one path per line")
    text = limits.read_bounded(source, limits.JSON_BYTES)
    files: list[ListedFile] = []
    first: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        path, label = _parts(line.strip())
        _check_path(path, source, number)
        path = PurePosixPath(path).as_posix()
        if path in first:
            raise UserError(f"{source}, line {number}: '{shorten(path)}' is also in line {first[path]}")
        first[path] = number
        files.append(ListedFile(number, path, label))
    if not files:
        raise UserError(f"data.test_list: {source} names no file; write one path per line")
    return FileList(source, tuple(files), hashlib.sha256(text.encode()).hexdigest()[:12])


def choose_files(
    listed: FileList, folder: Place, known: Sequence[Any], classes: tuple[str, ...]
) -> tuple[list[Any], list[int]]:
    """The listed ones of the images `known` in `folder`, in the order of the list, and their labels."""
    places = {file.relative_to(folder).as_posix(): file for file in known}
    missing = [entry for entry in listed.files if entry.path not in places]
    if missing:
        named = ", ".join(f"{shorten(entry.path)} (line {entry.line})" for entry in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        hint = did_you_mean(missing[0].path, places) if len(places) <= 100_000 else ""
        raise UserError(
            f"{listed.source}: {len(missing)} of its {len(listed.files)} files are no images in {folder}: {named}{more}"
            f"{hint}; paths are relative to that folder"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [_label(entry, numbers, listed.source) for entry in listed.files]
    return [places[entry.path] for entry in listed.files], labels


def _parts(line: str) -> tuple[str, str | None]:
    """Path and label. A tab separates them; a space does where an image's name ends before it."""
    path, tab, label = line.partition("\t")
    if not tab:
        path, space, label = line.rpartition(" ")
        if not space or Path(path.strip()).suffix.lower() not in SUFFIXES:
            return line, None
    return path.strip(), label.strip() or None


def _check_path(path: str, source: Path, line: int) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "~")) or ".." in parts or "\\" in path or "\0" in path or path[1:2] == ":":
        raise UserError(
            f"{source}, line {line}: '{shorten(path)}' is no path inside the folder; write paths relative to it, with "
            "/ and without '..'"
        )


def _label(entry: ListedFile, numbers: Mapping[str, int], source: Path) -> int:
    """The class that is written, or that of the folder the image lies in; the two must agree."""
    top = entry.path.partition("/")[0] if "/" in entry.path else None
    of_folder = numbers.get(top) if top is not None else None
    if entry.label is None:
        if of_folder is None:
            raise UserError(
                f"{source}, line {entry.line}: '{shorten(entry.path)}' lies in no class folder; write its class after "
                "the path"
            )
        return of_folder
    written = numbers.get(entry.label)
    if written is None and entry.label.isascii() and entry.label.isdigit() and len(entry.label) < 8:
        written = int(entry.label) if int(entry.label) < len(numbers) else None
    if written is None:
        hint = did_you_mean(entry.label, numbers)
        raise UserError(
            f"{source}, line {entry.line}: there is no class '{shorten(entry.label)}'{hint}; write the name of a class "
            f"folder, or a number 0 … {len(numbers) - 1}"
        )
    if of_folder is not None and written != of_folder:
        raise UserError(
            f"{source}, line {entry.line}: '{shorten(entry.path)}' lies in the folder of another class than "
            f"'{shorten(entry.label)}'"
        )
    return written
