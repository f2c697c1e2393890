"""The images that training sees: a training split, sets added to it, and synthetic images beside it.

`load_training` is `load_data(config, "train")` and what `data.repeats`, `data.extra`, `data.synthetic` and
`augment.resized_crop_at: decode` make of it. Only training calls it: validation and every evaluation see the plain
splits. Classes of an added set are matched by name; a set that only numbers its classes is matched by number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.augment import RESIZED_CROP, AugmentConfig
from hardtack.data.datasets import DataConfig, Dataset, load_data, load_whole_training
from hardtack.data.sampler import SET
from hardtack.data.sampling import RandomCrop, Sampling
from hardtack.data.settings import ExtraConfig, SyntheticConfig
from hardtack.data.stores import join


def load_training(config: DataConfig, augment: AugmentConfig | None = None) -> Dataset:
    """The training split with everything that `data:` adds to it, sampled as `Dataset.sampling` says."""
    crop = _crop(config, augment or AugmentConfig())
    data = load_data(config, "train", uncut=crop is not None)
    # all sets get the size of the first, so that copies of another size need no setting
    sized = dataclasses.replace(config, image_size=config.image_size or data.image_shape[-1])
    parts, real = [data], len(data)
    for number, extra in enumerate(config.extra):
        rows = _same_rows(data, extra) if extra.copy else _all_rows
        parts.append(_added(sized, extra, data, rows, path=f"data.extra[{number}]", uncut=crop is not None))
        real += len(parts[-1])
    share = 0.0
    if config.synthetic is not None:
        share = config.synthetic.share
        parts.append(_added(sized, config.synthetic, data, _all_rows, path="data.synthetic", uncut=crop is not None))
    whole = _joined(parts)
    if config.repeats > 1 or share or crop is not None:
        whole.sampling = Sampling(real=real, repeats=config.repeats, share=share, crop=crop)
    return whole


def _crop(config: DataConfig, augment: AugmentConfig) -> RandomCrop | None:
    if augment.resized_crop_at != "decode" or augment.resized_crop is None:
        return None
    if config.image_size is None:
        raise UserError("augment.resized_crop_at=decode cuts out of photographs of any size: set data.image_size too")
    return RandomCrop(
        side=config.image_size, area=augment.resized_crop, ratio=augment.resized_crop_ratio,
        interpolation=augment.resized_crop_interpolation, stream=RESIZED_CROP,
    )  # fmt: skip


def _all_rows(labels: Tensor) -> Tensor:
    return torch.arange(len(labels))


def _same_rows(data: Dataset, extra: ExtraConfig) -> Callable[[Tensor], Tensor]:
    """Rows of a copy whose originals are in the training split; the copy may be of that split, or of the set it is cut
    from."""

    def rows(labels: Tensor) -> Tensor:
        if len(labels) == len(data):
            return torch.arange(len(data))
        if int(data.index.max()) < len(labels):
            return data.index
        raise UserError(
            f"{extra.name} has {len(labels)} images, too few to be a copy of {data.name}; leave out copy: true"
        )

    if extra.limit is not None:
        raise UserError(f"{extra.name}: a copy has the images of the training split; limit those with data.limit")
    return rows


def _added(
    config: DataConfig, added: ExtraConfig | SyntheticConfig, data: Dataset, rows: Callable[[Tensor], Tensor],
    *, path: str, uncut: bool,
) -> Dataset:  # fmt: skip
    """An added set, labelled with the classes of the training split."""
    try:
        part = load_whole_training(config, added, rows, uncut=uncut)
        numbers = _class_numbers(part, data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    part.labels = numbers[part.labels]
    if getattr(added, "copy", False) and not torch.equal(part.labels, data.labels):
        wrong = int((part.labels != data.labels).nonzero()[0])
        raise UserError(
            f"{path}: image {wrong} of {part.name} has another class than in {data.name}, so it is not a copy "
            "in the same order; leave out copy: true"
        )
    return part


def _class_numbers(part: Dataset, data: Dataset) -> Tensor:
    """The number that each class of `part` has in `data`."""
    numbered = part.classes == tuple(str(number) for number in range(len(part.classes)))
    if numbered and part.classes != data.classes:
        if len(part.classes) > len(data.classes):
            raise UserError(f"{part.name} has {len(part.classes)} classes, {data.name} only {len(data.classes)}")
        return torch.arange(len(part.classes))
    for name in part.classes:
        if name not in data.classes:
            raise UserError(
                f"{part.name} has a class '{name}', which {data.name} lacks{did_you_mean(name, data.classes)}"
            )
    return torch.tensor([data.classes.index(name) for name in part.classes])


def _joined(parts: list[Dataset]) -> Dataset:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    store, rows = join([part.store for part in parts], [part.rows for part in parts], [part.name for part in parts])
    added = ", ".join(f"{len(part)} of {part.name}" for part in parts[1:])
    return Dataset(
        store, rows=rows, labels=torch.cat([part.labels for part in parts]),
        index=torch.cat([part.index + number * SET for number, part in enumerate(parts)]),
        name=first.name, split=first.split, classes=first.classes, workers=first.workers,
        description=f"{first.description}; and {added}",
    )  # fmt: skip
