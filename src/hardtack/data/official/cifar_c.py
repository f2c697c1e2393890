"""CIFAR-10-C and CIFAR-100-C: one `.npy` per type (50,000×32×32×3, severities one after the other) and `labels.npy`.

The arrays are memory-mapped, in the extracted folder or inside the `.tar`; a severity is copied when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions.catalogue import COMMON, EXTRA, SEVERITIES, names
from hardtack.data.official import checksums, class_names, marker
from hardtack.data.official.arrays import ArrayFile
from hardtack.data.official.kinds import KINDS, of_how_many, title
from hardtack.data.official.sets import OfficialC
from hardtack.data.source import Stored, integer_labels, numbered_classes

_LEVELS = len(SEVERITIES)


def open_arrays(
    location: Path, files: Mapping[str, ArrayFile], kind: str | None, mark: dict[str, Any] | None
) -> OfficialC:
    """The set in `files` (by name without `.npy`); shapes, types and labels are checked, no image is read."""
    types = tuple(name for name in names() if name in files)
    labels = _labels(location, files)
    side = _side(files[types[0]])
    kind = kind or _guess(location, labels, side, marked=mark is not None)
    count = len(labels) // _LEVELS
    classes = _classes(location, kind, labels, mark)
    for name in types:
        _check(files[name], rows=len(labels), side=KINDS[kind].side or side)
    statement = marker.statement(kind, mark)
    notes = [f"{of_how_many(count, kind)} in each of {_LEVELS} severities", describe_types(types)]
    ignored = sorted(set(files) - {*types, "labels"})
    if ignored:
        notes.append(f"not used: {', '.join(f'{name}.npy' for name in ignored)}")
    published = checksums.PUBLISHED.get(kind) if mark is None and count == KINDS[kind].images else None
    if published and files["labels"].md5() != published["labels"]:
        notes.append("labels.npy is not the published file, byte for byte")

    def read(corruption: str, severity: int) -> Stored:
        first = (severity - 1) * count
        pixels = torch.from_numpy(files[corruption].open()[first : first + count]).permute(0, 3, 1, 2)
        note = f"{statement}: {corruption}, severity {severity}, {of_how_many(count, kind)}"
        return Stored(pixels, labels[:count], classes, note, source=marker.source_of(kind, mark))

    used = {name: files[name] for name in (*types, "labels")}
    return OfficialC(
        kind=kind, location=location, source=marker.source_of(kind, mark), types=types, classes=classes,
        description=f"{statement}: {'; '.join(notes)}", read=read, made=mark or {},
        compare=(lambda: checksums.differing(kind, used)) if kind in checksums.PUBLISHED else None,
    )  # fmt: skip


def describe_types(types: tuple[str, ...]) -> str:
    """`"13 of 15 common types (without frost, snow), 4 extra"`."""
    absent = [name for name in COMMON if name not in types]
    common = f"{len(COMMON) - len(absent)} of {len(COMMON)} common types (without {', '.join(absent)})"
    extra = sum(name in types for name in EXTRA)
    return (common if absent else f"all {len(COMMON)} common types") + (f", {extra} extra" if extra else "")


def _labels(location: Path, files: Mapping[str, ArrayFile]) -> Tensor:
    if "labels" not in files:
        near = did_you_mean("labels", files)
        raise UserError(
            f"{location} has {len(files)} .npy files but no labels.npy{near}; it comes with the archive and holds one "
            "label per row: extract it too"
        )
    file = files["labels"]
    labels = integer_labels(np.array(file.open()), file.where)
    if len(file.shape) != 1 or len(labels) == 0 or len(labels) % _LEVELS:
        raise UserError(
            f"{file.where} has shape {file.shape}; expected one label per row, {_LEVELS} severities × images"
        )
    first = labels[: len(labels) // _LEVELS]
    if not torch.equal(labels, first.repeat(_LEVELS)):
        raise UserError(
            f"{file.where}: the {len(labels):,} labels do not repeat {_LEVELS} times, once per severity; expected "
            f"severity s in rows (s−1)·{len(first):,} … s·{len(first):,}; is it one severity only, or cut from more?"
        )
    if int(labels.min()) < 0:
        raise UserError(f"{file.where} has the negative label {int(labels.min())}")
    return labels


def _side(file: ArrayFile) -> int:
    if len(file.shape) == 4 and file.shape[1] == 3:
        raise UserError(
            f"{file.where} has shape {file.shape}, channels first; expected rows×side×side×3: "
            "save array.transpose(0, 2, 3, 1)"
        )
    if len(file.shape) != 4 or file.shape[3] != 3 or file.shape[1] != file.shape[2]:
        raise UserError(
            f"{file.where} has shape {file.shape}; expected rows×side×side×3, (50000, 32, 32, 3) in CIFAR-C"
        )
    return file.shape[1]


def _check(file: ArrayFile, *, rows: int, side: int) -> None:
    if file.dtype != np.uint8:
        raise UserError(f"{file.where} holds {file.dtype}; expected uint8, 0 … 255, as the official files do")
    if _side(file) != side:
        raise UserError(f"{file.where} has images of {_side(file)} pixels; expected {side}")
    if file.shape[0] != rows:
        raise UserError(
            f"{file.where} has {file.shape[0]:,} rows but labels.npy has {rows:,} labels; they must agree: "
            "both from the same archive, or both cut alike in every severity"
        )
    file.open()  # a file that is cut off is found now and not after an hour


def _guess(location: Path, labels: Tensor, side: int, *, marked: bool) -> str:
    top = int(labels.max())
    if side != KINDS["cifar10c"].side or top > 99:
        if marked:
            return "corrupted"
        raise UserError(
            f"{location} holds images of {side} pixels with labels up to {top}; CIFAR-C has 32 pixels and 10 or 100 "
            "classes; open files of your own as corrupted:PATH/TYPE/SEVERITY (kind='corrupted')"
        )
    return "cifar100c" if top > 9 or "100" in location.name else "cifar10c"


def _classes(location: Path, kind: str, labels: Tensor, mark: dict[str, Any] | None) -> tuple[str, ...]:
    if kind == "corrupted":
        return tuple(map(str, (mark or {}).get("classes", ()))) or numbered_classes(labels)
    classes = class_names.CIFAR10 if kind == "cifar10c" else class_names.CIFAR100
    if int(labels.max()) >= len(classes):
        hint = "; is it CIFAR-100-C? then say cifar100c" if kind == "cifar10c" and int(labels.max()) < 100 else ""
        raise UserError(
            f"{location}: labels go up to {int(labels.max())}, but {title(kind)} has {len(classes)} classes{hint}"
        )
    counts = torch.bincount(labels, minlength=len(classes))
    if len(labels) == _LEVELS * KINDS[kind].images and bool((counts != counts[0]).any()):
        found = int((counts > 0).sum())
        raise UserError(
            f"{location}: labels.npy names {found} classes unevenly; {title(kind)} has {len(classes)} classes "
            f"with {KINDS[kind].images // len(classes):,} images each: it is not this set's label file"
        )
    return classes
