"""One name, one data set: always RGB in [0,1], never normalised.

`load_data("cifar10", "train")` opens the stored splits through the reader registered under the name, cuts a
validation set out of the training split where the source has none, brings the images to one size, and
keeps them decoded when they fit in memory.

Rules for splits. A validation set of the source's own is used when the source has a test set too. A source
with training and validation images but no test set (ImageNet) lends its validation images as `test`, and
`validation` is cut from training, so that a model is never chosen on the images it is reported on. A set
without splits gives a share away as `test`, then one as `validation`, and the rest is `train`; `test: 1` makes
all of it `test`, for measuring a model that was trained elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from hardtack.base import config as configuration
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import datasets
from hardtack.data import decode
from hardtack.data.damage import readable_rows, settle_damage
from hardtack.data.original import Original
from hardtack.data.sampling import Sampling
from hardtack.data.settings import DataConfig, ExtraConfig, SyntheticConfig
from hardtack.data.source import WHOLE, Images, Sequence, Splits, Stored, check_labels
from hardtack.data.splitting import first_rows, stratified_cut
from hardtack.data.stores import InOrder, OnDisk, OnHost, Resident, Store, to_unit

Split = Literal["train", "validation", "test"]
WITHOUT_PREFIX = ("hfds/", "wds/", "tfds/", "hfids/")


class Batch(NamedTuple):
    """x: N×3×H×W float32 in [0,1]; y: N int64; index: N int64, each image's place in its stored split.

    In training, further copies of an image and images of other sets have numbers of their own (see `sampler`).
    """

    x: Tensor
    y: Tensor
    index: Tensor  # type: ignore[assignment]  # it hides tuple.index, which nobody wants here


class Dataset:
    """One split, ready to be batched. `rows[i]` is where image i lies in the store.

    `source` says who made corrupted or shifted images (`official`, `regenerated`, `own`; empty for ordinary sets);
    `class_subset` are the only classes that occur by definition (200 of 1000 in ImageNet-A), int64 and ascending;
    `sampling` says how training draws images, where that is not simply each image once per epoch; `original` are the
    stored images of a set that is resized.
    """

    sampling: Sampling | None = None

    def __init__(
        self, store: Store, *, rows: Tensor, labels: Tensor, index: Tensor,
        name: str, split: str, classes: tuple[str, ...], description: str, workers: int = 0,
        source: str = "", class_subset: Tensor | None = None, original: Original | None = None,
    ) -> None:  # fmt: skip
        self.store, self.rows, self.labels, self.index = store, rows, labels, index
        self.name, self.split, self.classes, self.description = name, split, classes, description
        self.workers, self.source, self.class_subset, self.original = workers, source, class_subset, original
        self._tables: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    num_classes = property(lambda self: len(self.classes))
    image_shape = property(lambda self: self.store.shape)
    streamed = property(lambda self: self.store.streamed)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        size = "×".join(str(side) for side in self.image_shape)
        return f"Dataset({self.name} {self.split}: {len(self)} images {size}, {self.num_classes} classes)"

    def subset(self, indices: Tensor | list[int]) -> Dataset:
        """The images at `indices` of this split; each keeps the `index` it has in its stored split."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= len(self)):
            raise UserError(f"subset of {self.name}: indices must lie in 0 … {len(self) - 1}")
        return Dataset(
            self.store, rows=self.rows[chosen], labels=self.labels[chosen], index=self.index[chosen],
            name=self.name, split=self.split, classes=self.classes, description=self.description,
            workers=self.workers, source=self.source, class_subset=self.class_subset, original=self.original,
        )  # fmt: skip

    def first(self, count: int) -> Dataset:
        """The first `count` images; evenly from every class where they are stored class by class."""
        part = self.subset(first_rows(self.labels, count))
        parts = [words for words in self.description.split("; ") if not re.fullmatch(r"first \d+", words)]
        part.description = "; ".join(filter(None, [*parts, f"first {count}"]))
        return part

    def among_its_classes(self) -> Dataset:
        """The same images, labelled by their place in `class_subset`."""
        if self.class_subset is None:
            return self
        part, chosen = self.subset(torch.arange(len(self))), self.class_subset
        part.labels, part.class_subset = torch.searchsorted(chosen, self.labels), None
        part.classes = tuple(self.classes[number] for number in chosen.tolist())
        part.description += f"; among its {len(chosen)} classes"
        return part

    def batch(self, indices: Tensor | Iterable[int], device: torch.device | str = "cpu") -> Batch:
        """The images at `indices` (N int64) on `device`; decodes them first when streamed."""
        indices = indices if isinstance(indices, Tensor) else torch.tensor(list(indices), dtype=torch.int64)
        device = torch.device(device)
        rows, labels, index = self._on(device)
        if isinstance(self.store, Resident):
            chosen = indices.to(device)
            return Batch(to_unit(self.store.on(device)[rows[chosen]]), labels[chosen], index[chosen])
        pixels = self.store.fetch(self.rows[indices.cpu()])
        chosen = indices.to(device)
        return Batch(to_unit(pixels.to(device)), labels[chosen], index[chosen])

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, labels, index) on `device`, moved there once, so that a step copies nothing."""
        if device not in self._tables:
            self._tables[device] = (self.rows.to(device), self.labels.to(device), self.index.to(device))
        return self._tables[device]


def load_data(
    config: DataConfig | str, split: Split, *, uncut: bool = False, model_size: int | None = None, **overrides: Any
) -> Dataset:
    """The split `train`, `validation` or `test` of a data set, from its name or its configuration.

    What training adds to it (repeats, extra and synthetic images) is in `mixtures.load_training` alone. `uncut` leaves
    the images at their stored size, for a loader that cuts them itself. `model_size` is the size that a model takes:
    images of another width are brought to it where the settings name no size, before any of them is decoded.
    """
    if split not in get_args(Split):
        raise UserError(f"there is no split '{split}'{did_you_mean(split, get_args(Split))}: train, validation, test")
    values = {"name": config} if isinstance(config, str) else dataclasses.asdict(config)
    settings: DataConfig = configuration.build(DataConfig, {**values, **overrides})
    name, path = parse_name(settings.name)
    if settings.test_list is not None and name != "folder":
        raise UserError(f"data.test_list chooses among the files of folder:PATH, and {settings.name} is another kind")
    splits: Splits = datasets.get(name).make(settings, path)
    stored_name, cut = _choose(splits, split, settings)
    stored = splits[stored_name]()
    title = f"{settings.name} ({stored_name})" if stored_name != WHOLE else settings.name
    check_labels(stored.labels, stored.classes, title)
    rows = torch.arange(len(stored.labels))
    if stored_name == WHOLE:
        rows = _part_of_whole(stored, split, settings)
    if cut:
        parts = stratified_cut(stored.labels[rows], settings.validation, settings.split_seed, stored.classes)
        rows = rows[parts[0] if split == "train" else parts[1]]
    return _assemble(
        stored, rows, settings, split=split, stored_name=stored_name, cut=cut, uncut=uncut, model_size=model_size
    )


def load_whole_training(
    config: DataConfig, added: ExtraConfig | SyntheticConfig, rows: Callable[[Tensor], Tensor], *, uncut: bool
) -> Dataset:
    """The images of an added set that `rows` chooses from the labels of its training split, or of all it has."""
    own = {key: value for key in ("root", "label") if (value := getattr(added, key)) is not None}
    settings = dataclasses.replace(config, name=added.name, limit=added.limit, test_list=None, **{"label": None, **own})
    name, path = parse_name(settings.name)
    splits: Splits = datasets.get(name).make(settings, path)
    stored_name = next((name for name in ("train", WHOLE) if name in splits), None)
    if stored_name is None:
        raise UserError(f"{settings.name} has no training images, only {', '.join(splits)}")
    stored = splits[stored_name]()
    check_labels(stored.labels, stored.classes, settings.name)
    settings = dataclasses.replace(settings, test=1.0)
    return _assemble(
        stored, rows(stored.labels), settings, split="train", stored_name=stored_name, cut=False, uncut=uncut
    )


def measured_whole(stored: Stored, name: str, **settings: Any) -> Dataset:
    """All of `stored` as the test split of a set called `name`; `settings` are those of `DataConfig`."""
    config: DataConfig = configuration.build(DataConfig, {**settings, "name": name})
    check_labels(stored.labels, stored.classes, name)
    rows = torch.arange(len(stored.labels))
    return _assemble(stored, rows, config, split="test", stored_name="test", cut=False)


def _assemble(
    stored: Stored, rows: Tensor, settings: DataConfig, *, split: Split, stored_name: str, cut: bool,
    uncut: bool = False, model_size: int | None = None,
) -> Dataset:  # fmt: skip
    if settings.limit is not None:
        rows = rows[first_rows(stored.labels[rows], settings.limit)]
    if settings.skip_damaged and not isinstance(stored.images, Tensor | Sequence):
        rows, damaged = readable_rows(stored.images, rows)
        note = settle_damage(damaged, settings.name, skip=True)
        stored = dataclasses.replace(stored, note="; ".join(filter(None, [stored.note, note])))
        check_labels(stored.labels[rows], stored.classes, settings.name)
    if settings.image_size is None and model_size is not None and _stored_width(stored.images, rows) != model_size:
        settings = dataclasses.replace(settings, image_size=model_size)
    store, positions = _store(stored, rows, settings) if not uncut else _uncut_store(stored, rows, settings)
    return Dataset(
        store, rows=positions, labels=stored.labels[rows], index=rows, name=settings.name, split=split,
        classes=stored.classes, workers=settings.workers, source=stored.source, class_subset=stored.class_subset,
        original=None if uncut else _original(stored, settings),
        description=_describe(stored, store, settings, split=split, stored_name=stored_name, cut=cut, uncut=uncut),
    )  # fmt: skip


def parse_name(name: str) -> tuple[str, str]:
    """(reader, path) from `folder:PATH`, `cifar10` or `hfds/NAME`."""
    if name.startswith(WITHOUT_PREFIX):
        return "timm", name
    word, colon, path = name.partition(":")
    if word not in datasets and ("/" in word or not did_you_mean(word, datasets.names())):
        raise UserError(
            f"there is no dataset '{word}'; a folder of images with one subfolder per class is folder:PATH; known: "
            + ", ".join(datasets.names())
        )
    form = datasets.get(word).presets.get("path")
    if form and not path:
        raise UserError(f"dataset '{word}' needs a path: {word}:{form}")
    if not form and colon:
        raise UserError(f"dataset '{word}' takes no path; set data.root to the folder of its files")
    return word, path


def _choose(splits: Splits, split: Split, settings: DataConfig) -> tuple[str, bool]:
    """(stored split to open, whether to cut it) for the split asked for; the rules are in the module docstring."""
    own_validation = "validation" in splits and "test" in splits
    if split == "test":
        wanted = next((name for name in ("test", "validation", WHOLE) if name in splits), None)
        cut = False
    elif split == "validation" and own_validation:
        return "validation", False
    else:
        wanted = next((name for name in ("train", WHOLE) if name in splits), None)
        cut = not own_validation and not (split == "train" and settings.validation == 0)
    if wanted is None:
        mend = "it is for measuring" if list(splits) == ["test"] else "name the folder with all splits"
        raise UserError(f"{settings.name} has no {split} split, only {', '.join(splits)}; {mend}")
    if cut and settings.validation == 0:
        raise UserError(f"{settings.name} has no validation split; set data.validation above 0 to cut one")
    return wanted, cut


def _part_of_whole(stored: Stored, split: Split, settings: DataConfig) -> Tensor:
    """Rows of a set without splits that are its test images, or those that are not."""
    if settings.test == 1:
        if split != "test":
            raise UserError(f"data.test=1 makes all of {settings.name} test images and leaves none for {split}")
        return torch.arange(len(stored.labels))
    rest, held = stratified_cut(stored.labels, settings.test, settings.split_seed, stored.classes)
    return held if split == "test" else rest


def _store(stored: Stored, rows: Tensor, settings: DataConfig) -> tuple[Store, Tensor]:
    """The pixels of `rows`, decoded if they fit, and the position of each row in what is returned."""
    size, images = _size(stored, settings), stored.images
    if isinstance(images, Tensor):
        pixels = torch.cat([decode.fit(part, size) for part in images[rows].split(4096)]).contiguous()
        stream = _streams(pixels.numel() * pixels.element_size(), settings)
        return OnHost(pixels) if stream else Resident(pixels), torch.arange(len(rows))
    first = next(images.walk()) if isinstance(images, Sequence) else images.read(int(rows[0]))
    shape: tuple[int, int, int] = tuple(decode.fit_array(first, size).shape)  # type: ignore[assignment]
    stream = _streams(len(rows) * shape[0] * shape[1] * shape[2], settings, remote=stored.remote)
    if isinstance(images, Sequence):
        if stream:
            return InOrder(images, size, shape), rows
        pixels = torch.empty((len(rows), *shape), dtype=torch.uint8)
        for slot, (row, image) in enumerate(decode.walk_rows(images, set(rows.tolist()), size)):
            decode.place(pixels, slot, image.permute(1, 2, 0).numpy(), None, f"image {row} of {settings.name}")
        return Resident(pixels), torch.arange(len(rows))
    if stream:
        return OnDisk(images, size, shape), rows
    return Resident(decode.decode_all(images, rows.tolist(), size, shape)), torch.arange(len(rows))


def _stored_width(images: Tensor | Images | Sequence, rows: Tensor) -> int:
    """Of the first image, the only one that is decoded for it."""
    if isinstance(images, Tensor):
        return images.shape[-1]
    first = next(images.walk()) if isinstance(images, Sequence) else images.read(int(rows[0]))
    return first.shape[1]


def _uncut_store(stored: Stored, rows: Tensor, settings: DataConfig) -> tuple[Store, Tensor]:
    """The stored images of `rows`, none of them resized: the caller of `fetch` says how to cut them."""
    size, images = _size(stored, settings), stored.images
    assert size is not None
    if isinstance(images, Tensor):
        return OnHost(images[rows], size), torch.arange(len(rows))
    shape = (3, size.side, size.side)
    return InOrder(images, size, shape) if isinstance(images, Sequence) else OnDisk(images, size, shape), rows


def _size(stored: Stored, settings: DataConfig) -> decode.Size | None:
    if settings.image_size is None:
        return None
    # rounded down, as timm does it: 248 pixels for a crop of 0.9 at 224
    return decode.Size(settings.image_size, math.floor(settings.image_size / _crop(stored, settings)))


def _crop(stored: Stored, settings: DataConfig) -> float:
    return settings.crop or stored.crop


def _original(stored: Stored, settings: DataConfig) -> Original | None:
    size = _size(stored, settings)
    return None if size is None else Original(stored.images, size, _crop(stored, settings))


def _streams(size_bytes: int, settings: DataConfig, *, remote: bool = False) -> bool:
    if settings.stream is not None:
        return settings.stream
    return remote or size_bytes > settings.memory_limit_mb * 2**20


def _describe(
    stored: Stored, store: Store, settings: DataConfig, *, split: str, stored_name: str, cut: bool, uncut: bool
) -> str:
    side = settings.image_size
    random = f"random boxes of the stored images, resized to {side}×{side}"
    parts = [stored.note, random if uncut else decode.describe(_size(stored, settings), store.shape)]
    if stored_name == WHOLE and settings.test < 1:
        share = f"the share of {settings.test:g} cut from a set without splits by split_seed {settings.split_seed}"
        parts.append(share if split == "test" else f"without {share} for test")
    if cut:
        share = f"share of {settings.validation:g} cut from train by split_seed {settings.split_seed}"
        parts.append(f"without the {share}" if split == "train" else f"the {share}")
    elif stored_name not in (split, WHOLE):
        parts.append(f"the stored {stored_name} split serves as {split}")
    if isinstance(store, InOrder):
        parts.append("streamed in stored order; shuffled inside windows; resuming walks past what was seen")
    if settings.limit is not None:
        parts.append(f"first {settings.limit}")
    return "; ".join(part for part in parts if part)
