"""What every reader hands over: the stored splits of a data set, labels known, images not yet decoded.

A reader is a function `(config, path) -> Splits`, registered in the registry `datasets`, with `path="PATH"` where
its name is followed by a path. It never resizes, cuts or batches; that is the same for all of them and is done in
`datasets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.base.limits import CLASSES, check_classes

WHOLE = "whole"
"""The name of the one stored split of a set that has no splits; it serves as whichever is asked for."""

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}


@runtime_checkable
class Images(Protocol):
    """Undecoded images that can be read in any order."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> np.ndarray:
        """Image `index` as H×W×3 uint8 RGB."""

    def where(self, index: int) -> str:
        """The file or row of image `index`, for messages."""


@runtime_checkable
class EncodedImages(Protocol):
    """Images whose stored bytes can be read without decoding them."""

    def encoded(self, index: int) -> bytes:
        """The stored bytes of image `index`."""


@runtime_checkable
class VersionedImages(Protocol):
    """Images of which a store may know the version, so that nothing has to be read to see that they are the same."""

    def version(self, index: int) -> str | None:
        """Changes with the remote object of image `index`, and names its place inside; None: its bytes are local."""


@runtime_checkable
class PrefetchedImages(Protocol):
    """Images that are better fetched many at a time."""

    def prefetch(self, rows: list[int]) -> None:
        """Have these images ready to be read."""


@runtime_checkable
class Sequence(Protocol):
    """Images that can only be read from the first to the last (web shards, tfds)."""

    def __len__(self) -> int: ...

    def walk(self) -> Iterator[np.ndarray]:
        """Every image in stored order as H×W×3 uint8 RGB."""


@dataclass(frozen=True)
class Stored:
    """One stored split: `images` (N×3×H×W tensor, uint8 or float32 in [0,1], when already decoded).

    `source` and `class_subset` are passed on to the `Dataset`, where they are explained. `crop` is the share of the
    shorter side that the centre crop of this set usually keeps. The images of a `remote` set are fetched when they are
    read, and so are not read all at once unless `data.stream=false` asks for it.
    """

    images: Tensor | Images | Sequence
    labels: Tensor
    classes: tuple[str, ...]
    note: str = ""
    source: str = ""
    class_subset: Tensor | None = None
    crop: float = 1.0
    remote: bool = False


Splits = dict[str, Callable[[], Stored]]
"""Name of each stored split (train, validation, test; or WHOLE alone) and the function that opens it."""


def check_labels(labels: Tensor, classes: tuple[str, ...], name: str) -> None:
    """Refuse an empty split and labels that name no class."""
    if len(labels) == 0:
        raise UserError(f"{name} holds no images")
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        row = int((labels < 0).nonzero()[0])
        raise UserError(f"{name}: image {row} has the negative label {low}; unlabelled splits cannot be used")
    if high >= len(classes):
        row = int((labels >= len(classes)).nonzero()[0])
        raise UserError(f"{name}: image {row} has label {int(labels[row])}, but there are only {len(classes)} classes")


def integer_labels(values: object, name: str) -> Tensor:
    """Labels as int64, refused when they are not whole numbers (NaN included)."""
    array = np.asarray(values).reshape(-1)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or (array != np.round(array)).any():
            raise UserError(f"{name}: labels must be whole numbers, found NaN or fractions")
    elif array.dtype.kind not in "iub":
        raise UserError(f"{name}: labels must be whole numbers 0 … C−1, found {array.dtype}; map the names to numbers")
    if len(array) and int(array.max()) >= CLASSES:
        row = int(array.argmax())
        raise UserError(f"{name}: row {row} has the label {int(array[row])}, and the limit is {CLASSES} classes")
    return torch.from_numpy(array.astype(np.int64))


def numbered_classes(*labels: Tensor) -> tuple[str, ...]:
    """`("0", "1", …)` up to the greatest label of any split, for sets that store no names."""
    top = max((int(part.max()) for part in labels if len(part)), default=-1)
    check_classes(top + 1, "labels")
    return tuple(str(number) for number in range(top + 1))
