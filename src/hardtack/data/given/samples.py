"""Pairs of image and label out of what yields them: torch's data sets and loaders, Hugging Face's, lists of pairs.

They are read once, in stored order, and held in memory as N×C×H×W. A data set that gives another image when it is asked
twice (a random transform) is refused: what is measured must be one set of images.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data.given.arrays import as_labels, as_pixels, as_tensor, check_levels, is_array
from hardtack.data.splitting import first_rows

_IMAGES = ("image", "img", "images", "pixel_values", "x", "input", "inputs")
_WHOLE = (
    torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler, torch.utils.data.WeightedRandomSampler
)  # fmt: skip
_ASKED_TWICE = 16  # rows: a flip with probability 1/2 then goes unnoticed once in 65,000 calls
_LABELS = ("label", "labels", "y", "target", "targets", "fine_label")


class Samples(NamedTuple):
    """`images` are uint8 or float32, `classes` are empty where classes are only numbered, `note` says what was done."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    note: str


def read_samples(data: Any, n: int | None) -> Samples:
    """All images, or the first `n` of them: evenly by class where labels are known and stored class by class."""
    if isinstance(data, torch.utils.data.DataLoader):
        return _read_loader(data, n)
    if is_hugging_face(data):
        return _read_hugging_face(data, n)
    name = _name_of(data)
    if isinstance(data, torch.utils.data.TensorDataset) and len(data.tensors) == 2:
        x, y = data.tensors
        labels, _ = as_labels(y)
        if n is not None and len(labels):
            chosen = first_rows(labels, n)
            x, labels = x[chosen], labels[chosen]
        return _gathered([(x, labels)], data, name, batched=True)
    if _has_rows(data):
        rows = _rows(len(data), _stored_labels(data), n)
        _check_stays(data, rows)
        return _gathered((data[row] for row in rows), data, name, count=len(rows))
    if isinstance(data, Iterable):
        return _gathered(data, data, name, count=n, most=n)
    raise UserError(
        f"data must be images with labels, found {type(data).__name__}: give a pair (x, y), a DataLoader, a data set "
        "of torch or Hugging Face, or ht.load_data(NAME, 'test')"
    )


# ---------------------------------------------------------------- loaders and data sets of torch


def _read_loader(loader: Any, n: int | None) -> Samples:
    """The data set of a loader, once and in stored order; of rows that a sampler of the user's chooses, as it does."""
    data, sampler, batched = loader.dataset, loader.sampler, loader.batch_sampler is not None
    name, usual = _name_of(data), type(loader.batch_sampler) in (torch.utils.data.BatchSampler, type(None))
    if not (_has_rows(data) and usual and isinstance(sampler, (*_WHOLE, torch.utils.data.SubsetRandomSampler))):
        if _has_rows(data):
            _check_stays(data, range(len(data)))
        return _gathered(loader, data, name, batched=batched, most=n)
    if isinstance(sampler, torch.utils.data.SubsetRandomSampler):
        data = torch.utils.data.Subset(data, sorted(map(int, sampler.indices)))
    rows = _rows(len(data), _stored_labels(data), n)
    _check_stays(data, rows)
    part = torch.utils.data.DataLoader(
        torch.utils.data.Subset(data, rows), batch_size=loader.batch_size, num_workers=loader.num_workers,
        collate_fn=loader.collate_fn, worker_init_fn=loader.worker_init_fn,
    )  # fmt: skip
    samples = _gathered(part, data, name, batched=batched, count=len(rows))
    if isinstance(sampler, torch.utils.data.SequentialSampler):
        return samples
    return samples._replace(note="; ".join(filter(None, (samples.note, "in stored order"))))


def _has_rows(data: Any) -> bool:
    return callable(getattr(data, "__getitem__", None)) and callable(getattr(data, "__len__", None))


def _rows(count: int, labels: Tensor | None, n: int | None) -> Sequence[int]:
    if n is None or n >= count:
        return range(count)
    return range(n) if labels is None else first_rows(labels, n).tolist()


def _stored_labels(data: Any) -> Tensor | None:
    """The labels that data sets of torch and torchvision keep; they spare a walk over the images."""
    if isinstance(data, torch.utils.data.Subset):
        labels = _stored_labels(data.dataset)
        return None if labels is None else labels[torch.as_tensor(data.indices, dtype=torch.int64)]
    if isinstance(data, torch.utils.data.TensorDataset):
        targets = data.tensors[1] if len(data.tensors) > 1 else None
    else:
        targets = getattr(data, "targets", None)
    try:
        labels = None if targets is None else as_labels(targets)[0].cpu()
    except UserError:
        return None
    return labels if labels is not None and len(labels) == len(data) and len(labels) else None


def _check_stays(data: Any, rows: Sequence[int]) -> None:
    """Some rows are read twice. One would not do: a random flip leaves every second image as it was."""
    for row in rows[:_ASKED_TWICE]:
        first, second = (np.asarray(_pair(data[row])[0]) for _ in range(2))
        if first.shape != second.shape or not np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            raise UserError(
                f"{_name_of(data)} gives another image when it is asked twice (a random transform?): give it without "
                "random transforms; training has its own: augment={'flip': 0.5, 'crop_padding': 4}"
            )


def _gathered(
    items: Iterable[Any], data: Any, name: str, *, batched: bool = False, count: int | None = None,
    most: int | None = None,
) -> Samples:  # fmt: skip
    """One tensor of all images. Each item is a sample, or a batch of them."""
    images: list[Tensor] = []
    labels: list[Tensor] = []
    notes: dict[str, None] = {}
    have = 0
    for image, label in map(_pair, items):
        where = f"images of {name}"
        y, about = as_labels(label if batched else [_number(label, name)], f"labels of {name}")
        try:
            x, note = as_pixels(image if batched else _one_image(image), count=len(y), what=where, part=True)
        except UserError as error:
            raise UserError(f"{error}{_normalisation_of(data)}") from None
        if images and x.shape[1:] != images[0].shape[1:]:
            sizes = ("×".join(map(str, each.shape[1:])) for each in (images[0], x))
            raise UserError("{} have several sizes, {} and {}: resize them in its transform".format(where, *sizes))
        if len(x) != len(y):
            raise UserError(f"there must be one label for each image, found {len(x)} and {len(y)} in {name}")
        if not images:
            _check_room(x, count or _length(data), name)
        images.append(x.cpu())
        labels.append(y.cpu())
        notes |= dict.fromkeys(filter(None, (note, about)))
        have += len(y)
        if most is not None and have >= most:
            break
    if not have:
        raise UserError(f"{name} holds no images")
    if len({each.dtype for each in images}) > 1:
        raise UserError(f"images of {name} are partly whole numbers and partly floats")
    x, y = torch.cat(images)[:most], torch.cat(labels)[:most]
    check_levels(x, f"images of {name}")
    return Samples(x, y, _class_names(data), name, "; ".join(notes))


def _one_image(image: Any) -> Tensor:
    """A batch of one: a PIL image, H×W, or an array of three axes."""
    array = as_tensor(np.asarray(image) if hasattr(image, "getbands") else image, "an image")
    if hasattr(image, "getbands") and image.mode not in ("RGB", "L"):
        array = as_tensor(np.asarray(image.convert("RGB")), "an image")
    return array[None]


def _number(label: Any, name: str) -> Any:
    if isinstance(label, str):
        raise UserError(f"labels of {name} must be whole numbers, found '{label}'; map the names to numbers 0 … C−1")
    if is_array(label) and math.prod(label.shape) != 1:
        raise UserError(f"labels of {name} must be one class number for each image, found an array")
    return label.item() if is_array(label) else label


def _pair(item: Any) -> tuple[Any, Any]:
    """Image and label of a sample or batch: (image, label, …), or a mapping with the usual names."""
    if isinstance(item, Mapping):
        image, label = (next((key for key in names if key in item), None) for names in (_IMAGES, _LABELS))
        if image is None or label is None:
            raise UserError(
                f"a sample has the entries {', '.join(map(str, item))}; one must be called image and one label"
            )
        return item[image], item[label]
    if isinstance(item, list | tuple) and len(item) >= 2:
        return item[0], item[1]
    kind = type(item).__name__
    raise UserError(f"data must give pairs (image, label), found {kind}: images without labels cannot be measured")


# ---------------------------------------------------------------- Hugging Face


def is_hugging_face(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets" and not isinstance(data, Mapping)


def _read_hugging_face(data: Any, n: int | None) -> Samples:
    image, label = hugging_face_columns(data)
    features, name = data.features or {}, f"Hugging Face {getattr(data, 'builder_name', None) or 'data set'}"
    classes = tuple(getattr(features.get(label), "names", None) or ())
    pairs: Iterator[tuple[Any, Any]]
    if _has_rows(data):
        plain = data.with_format(None)
        rows = _rows(len(data), as_labels(list(plain[label]))[0] if n is not None else None, n)
        pairs, count = ((row[image], row[label]) for row in plain.select(rows)), len(rows)
    else:
        pairs, count = ((row[image], row[label]) for row in data), n or 0
    samples = _gathered(pairs, data, name, count=count, most=n)
    return samples._replace(classes=classes, note="; ".join(filter(None, (samples.note, f"columns {image}, {label}"))))


def hugging_face_columns(data: Any) -> tuple[str, str]:
    """The column of images and the column of labels; which one it is of several must be said."""
    features = data.features or {}
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    columns = list(features) or list(data.column_names or ())
    images = [name for name in columns if kinds.get(name) == "Image"] or [n for n in _IMAGES if n in columns][:1]
    labels = [name for name in columns if kinds.get(name) == "ClassLabel"] or [n for n in _LABELS if n in columns][:1]
    for found, what, names in ((images, "images", "image"), (labels, "labels", "label")):
        if len(found) != 1:
            several = f"several columns of {what} ({', '.join(found)})" if found else f"no column of {what}"
            mend = f"remove all but one: data.remove_columns({found[1:]!r})" if found else f"rename it to '{names}'"
            raise UserError(f"this data set has {several} among {', '.join(columns)}; {mend}")
    return images[0], labels[0]


# ---------------------------------------------------------------- what is said about them


def _name_of(data: Any) -> str:
    while isinstance(data, torch.utils.data.Subset):
        data = data.dataset
    return type(data).__name__


def _class_names(data: Any) -> tuple[str, ...]:
    while isinstance(data, torch.utils.data.Subset):
        data = data.dataset
    names = getattr(data, "classes", None)
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def _normalisation_of(data: Any) -> str:
    """The mean and std of a torchvision transform that normalises, ready to be given to `wrap`."""
    while isinstance(data, torch.utils.data.Subset):
        data = data.dataset
    transform = getattr(data, "transform", None)
    for step in [transform, *(getattr(transform, "transforms", None) or ())]:
        if type(step).__name__ == "Normalize":
            mean, std = ([round(float(v), 4) for v in getattr(step, key)] for key in ("mean", "std"))
            grey = ", channels=1" if len(mean) == 1 else ""
            wrapped = f"ht.wrap(module, mean={mean}, std={std}{grey})"
            return f" (its transform ends with Normalize: leave that out, and {wrapped})"
    return ""


def _length(data: Any) -> int:
    return len(data) if _has_rows(data) else 0


def _check_room(x: Tensor, count: int, name: str) -> None:
    """All images are held in memory; too many are refused before they are read."""
    needed = x[0].numel() * x.element_size() * count
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not on this system
        return
    if needed > 0.8 * free:
        raise UserError(
            f"{name} has {count:,} images, {needed / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are free: "
            "take n=…, or name the files (ht.load_data('folder:PATH', 'test')), which are then read as they are needed"
        )
