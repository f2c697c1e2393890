"""Data that a user gives in Python: arrays, loaders and data sets of other libraries, as this package's own.

take((x, y))                     NumPy arrays or tensors
take(loader), take(data_set)     torch's, torchvision's and Hugging Face's
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data.datasets import Dataset, load_data
from hardtack.data.given.arrays import as_labels, as_pixels, is_array
from hardtack.data.given.samples import Samples, read_samples
from hardtack.data.splitting import first_rows
from hardtack.data.stores import Resident, to_unit

Pair = tuple[Tensor, Tensor]
TENSORS = "tensors"


TakesGrey = Callable[[Tensor], bool]
"""Whether a model takes an image of one channel (1×1×H×W float32)."""


def take(data: Any, *, n: int | None = None, takes_grey: TakesGrey | None = None) -> Dataset | Pair:
    """A data set, or a pair of tensors (x: N×C×H×W float32 in [0,1], y: int64), from what a user has.

    A pair of such tensors stays as it is. `n`: only so many of the first images. Grey images get three equal channels,
    unless the model takes one.
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise UserError(f"n must be a number of images, 1 or more, found {n!r}")
    if isinstance(data, Dataset):
        return data if n is None or n >= len(data) else data.first(n)
    if isinstance(data, str):
        return load_data(data, "test", limit=n)
    samples = as_samples(data, n, takes_grey)
    if samples.name == TENSORS:
        return samples.images, samples.labels
    count, (height, width) = len(samples.labels), samples.images.shape[-2:]
    note = "; ".join(filter(None, (f"{count} images {height}×{width} given in Python", samples.note)))
    return Dataset(
        Resident(samples.images), rows=torch.arange(count), labels=samples.labels.cpu(), index=torch.arange(count),
        name=samples.name, split="given", classes=samples.classes, description=note,
    )  # fmt: skip


def as_samples(data: Any, n: int | None = None, takes_grey: TakesGrey | None = None) -> Samples:
    """The images and labels of what a user gives, in memory. `name` is `tensors` where nothing had to be changed."""
    _refuse_other(data)
    if _is_pair(data):
        samples = _of_pair(data[0], data[1], n)
    else:
        samples = read_samples(data, n)
        if len(samples.labels) and int(samples.labels.max()) >= len(samples.classes):
            samples = samples._replace(classes=())  # names of fewer classes than there are
    images = samples.images
    if images.shape[1] == 3 or not len(images) or (takes_grey is not None and takes_grey(to_unit(images[:1]))):
        return samples
    note = "; ".join(filter(None, (samples.note, "grey as three equal channels")))
    name = "arrays" if samples.name == TENSORS else samples.name
    return samples._replace(images=images.expand(-1, 3, -1, -1), note=note, name=name)


def _of_pair(x: Any, y: Any, n: int | None) -> Samples:
    labels, about = as_labels(y)
    images, note = as_pixels(x, count=len(labels))
    if len(images) != len(labels):
        raise UserError(f"there must be one label for each image, found {len(images)} and {len(labels)}")
    if n is not None and n < len(labels):
        rows = first_rows(labels.cpu(), n)
        images, labels = images[rows.to(images.device)], labels[rows.to(labels.device)]
    note = "; ".join(filter(None, (note, about)))
    return Samples(images, labels, (), "arrays" if note else TENSORS, note)


def unit_images(x: Any, *, count: int | None = None) -> Tensor:
    """Images of one batch as float32 N×C×H×W in [0,1]."""
    return to_unit(as_pixels(x, count=count).images)


def _is_pair(data: Any) -> bool:
    """(x, y): two arrays. A list of two samples is not one: its items are pairs themselves."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    return not (isinstance(data, list) and all(isinstance(item, tuple | Mapping) for item in data))


def _refuse_other(data: Any) -> None:
    """What looks like data and is not, with what to give instead."""
    if is_array(data):
        raise UserError("data must be images with their labels: give a pair (x, y), found one array")
    if isinstance(data, os.PathLike):
        path = Path(data)
        kind = "folder" if path.is_dir() else path.suffix.removeprefix(".") or "folder"
        raise UserError(f"a path needs its format: ht.load_data('{kind}:{path}', 'test')")
    if isinstance(data, tuple) and len(data) != 2:
        raise UserError(f"data must be a pair (x, y) of images and labels, found a tuple of {len(data)}")
    if isinstance(data, Mapping):
        parts = [repr(name) for name in data]
        raise UserError(
            f"data has several parts ({', '.join(parts[:6])}): give one of them: data[{(parts or ['…'])[-1]}]"
        )
