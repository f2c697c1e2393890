"""ImageNet-A, -R, -V2 and -Sketch: one folder per synset, in V2 one per class number (0 … 999)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hardtack.base.errors import UserError
from hardtack.data.folder import FolderImages
from hardtack.data.official import marker, trees
from hardtack.data.official.kinds import of_how_many, title
from hardtack.data.official.sets import Shift
from hardtack.data.official.synsets import class_index, subset, synsets
from hardtack.data.source import Stored

_ORIGINAL = "ILSVRC2012_val_"
_CROP = 0.875  # shorter side to 256, then the centre 224, as their authors and ImageNet's own evaluation have it


def open_shift(location: Path, kind: str | None, mark: dict[str, Any] | None) -> Shift:
    """The set in `location`; its class folders are checked, its images are listed when it is opened."""
    names = trees.subfolders(location)
    kind = kind or _guess(location, names)
    labels = _numbers(location, kind, names)
    first = next((file for name in names for file in trees.files_in(location / name)), None)
    if first is None:
        raise UserError(f"{location}: none of its {len(names)} class folders holds an image; extract the archive again")
    if first.name.startswith(_ORIGINAL):
        raise UserError(
            f"{first} is an image of ImageNet's own validation set, which {title(kind)} has none of; "
            "name the folder of the shifted set, or open this one as folder:PATH"
        )
    statement = marker.statement(kind, mark)
    classes, chosen = synsets(), subset(kind)
    expected = len(classes) if chosen is None else len(chosen)
    part = f"{len(names)} of {expected} classes" if len(names) != expected else f"{expected} classes"

    def read() -> Stored:
        files, values = trees.list_images(location, labels)
        note = f"{statement} ({location.name}): {of_how_many(len(files), kind)}, {part}"
        return Stored(
            FolderImages(files), torch.tensor(values, dtype=torch.int64), classes, note,
            source=marker.source_of(kind, mark), class_subset=chosen, crop=_CROP,
        )  # fmt: skip

    return Shift(
        kind=kind, location=location, source=marker.source_of(kind, mark), classes=classes, class_subset=chosen,
        description=f"{statement} ({location.name}): {part}", read=read,
    )  # fmt: skip


def _numbers(location: Path, kind: str, names: list[str]) -> dict[str, int]:
    """Folder name to class index; a folder that does not belong is an error."""
    if kind == "imagenet_v2" and all(name.isdecimal() for name in names):
        beyond = [name for name in names if int(name) >= len(synsets())]
        if beyond:
            raise UserError(f"{location} has a folder '{beyond[0]}'; ImageNet-V2's folders are the classes 0 … 999")
        return {name: int(name) for name in names}
    labels = trees.labels_of(names, "imagenet", location)[1]
    chosen = subset(kind)
    if chosen is not None:
        allowed = set(chosen.tolist())
        others = [name for name in names if labels[name] not in allowed]
        if others:
            hint = next((f"; is it {title(other)}?" for other in _fitting(names) if other != kind), "")
            raise UserError(
                f"{location}: {len(others)} of its {len(names)} folders, {others[0]} first, are not among the "
                f"{len(allowed)} classes of {title(kind)}{hint}"
            )
    return labels


def _fitting(names: list[str]) -> list[str]:
    """The sets whose classes are exactly these."""
    return [kind for kind in ("imagenet_a", "imagenet_r") if set(names) == set(synsets(kind))]


def _guess(location: Path, names: list[str]) -> str:
    if all(name.isdecimal() for name in names):
        return "imagenet_v2"
    exact = _fitting(names)
    if exact:
        return exact[0]
    if len(names) == len(synsets()) or "sketch" in location.name.lower():
        return "imagenet_sketch"
    word = location.name.lower().replace("-", "_")
    for kind in ("imagenet_a", "imagenet_r"):
        if word == kind:
            return kind
    synset_count = sum(name in class_index() for name in names)
    raise UserError(
        f"{location} has {len(names)} folders, {synset_count} of them ImageNet synsets, but neither the 200 of "
        "ImageNet-A or -R nor all 1000; say which set it is part of: imagenet_a:PATH, imagenet_r:PATH, "
        "imagenet_sketch:PATH"
    )
