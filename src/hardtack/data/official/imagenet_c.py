"""ImageNet-C, Tiny-ImageNet-C and folders like them: TYPE/SEVERITY/CLASS/*.JPEG, also below noise/, blur/, weather/ …

Images are used as stored: 224×224 in ImageNet-C, 64×64 in Tiny-ImageNet-C, never resized or cropped unless asked.
Every type and severity lists the same images in the same order, so their indices can be compared across types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hardtack.base.errors import UserError
from hardtack.data.corruptions.catalogue import SEVERITIES
from hardtack.data.folder import FolderImages
from hardtack.data.official import marker, trees
from hardtack.data.official.cifar_c import describe_types
from hardtack.data.official.kinds import KINDS, of_how_many, title
from hardtack.data.official.sets import OfficialC
from hardtack.data.official.synsets import class_index
from hardtack.data.source import Stored

_RULES = {"imagenet_c": "imagenet", "tiny_imagenet_c": "tiny", "corrupted": "own"}


def open_tree(location: Path, folders: dict[str, Path], kind: str | None, mark: dict[str, Any] | None) -> OfficialC:
    """The set whose types lie in `folders`; one severity is listed when it is asked for."""
    for name, folder in folders.items():
        _require_severities(name, folder)
    types = tuple(folders)
    first = folders[types[0]] / "1"
    here = trees.subfolders(first)
    sample = _sample(first, here)
    kind = kind or _guess(first, here, sample)
    classes, labels = trees.labels_of(here, _RULES[kind], first)
    if KINDS[kind].side:
        trees.SquareImages([sample], KINDS[kind].side, title(kind)).require(*trees.size_of(sample), 0)
    statement = marker.statement(kind, mark)
    source = marker.source_of(kind, mark)

    def read(corruption: str, severity: int) -> Stored:
        folder = folders[corruption] / str(severity)
        folder_names = trees.subfolders(folder)
        if _RULES[kind] != "imagenet" and folder_names != here:
            odd = sorted(set(folder_names) ^ set(here))
            raise UserError(
                f"{folder} and {first} have different class folders ({odd[0]} is in one only); labels follow from "
                "their sorted names, so all types and severities must have the same"
            )
        numbers = trees.labels_of(folder_names, _RULES[kind], folder)[1]
        files, values = trees.list_images(folder, numbers)
        images = trees.SquareImages(files, KINDS[kind].side, title(kind)) if KINDS[kind].side else FolderImages(files)
        note = f"{statement}: {corruption}, severity {severity}, {of_how_many(len(files), kind)}"
        if len(folder_names) < len(classes):
            note += f" of {len(folder_names)} classes"
        return Stored(images, torch.tensor(values, dtype=torch.int64), classes, note, source=source)

    shown = f"{len(labels)} of {len(classes)} classes" if len(labels) < len(classes) else f"{len(classes)} classes"
    return OfficialC(
        kind=kind, location=location, source=source, types=types, classes=classes,
        description=f"{statement}: {shown}, {len(SEVERITIES)} severities; {describe_types(types)}", read=read,
        made=mark or {},
    )  # fmt: skip


def _require_severities(name: str, folder: Path) -> None:
    present = trees.subfolders(folder)
    absent = [str(severity) for severity in SEVERITIES if str(severity) not in present]
    if not absent:
        return
    if len(absent) < len(SEVERITIES):
        raise UserError(
            f"{folder} lacks the severity folder {' and '.join(absent)} (found {', '.join(present)}); expected "
            f"{name}/1 … {name}/5: the archive was not extracted whole"
        )
    shown = ", ".join(present[:3]) or "no folders"
    raise UserError(
        f"{folder} has {shown} where its severity folders 1 … 5 should be; expected TYPE/SEVERITY/CLASS/IMAGE"
    )


def _sample(folder: Path, classes: list[str]) -> Path:
    """The first image, or an explanation of why there is none."""
    for name in classes:
        files = trees.files_in(folder / name)
        if files:
            return files[0]
    loose = len(trees.files_in(folder))
    contents = (
        f"{loose} images without class folders" if loose and not classes else f"{len(classes)} class folders, no image"
    )
    raise UserError(
        f"{folder} has {contents}; expected TYPE/SEVERITY/CLASS/IMAGE, {folder}/n01440764/….JPEG in ImageNet-C"
    )


def _guess(folder: Path, names: list[str], sample: Path) -> str:
    synset_count = sum(name in class_index() for name in names)
    if trees.size_of(sample) == (KINDS["tiny_imagenet_c"].side,) * 2 and all(map(trees.is_synset, names)):
        return "tiny_imagenet_c"
    if synset_count or all(map(trees.is_synset, names)):
        return "imagenet_c"  # synsets it does not have are then named in the error
    return "corrupted"
