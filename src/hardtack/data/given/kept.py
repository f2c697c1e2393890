"""Images that were given in Python, under a name that settings can hold: `given:arrays-480x3x32x32-3f2a91c07b5d6e8f`.

with kept((x, y)) as images:                             # or a loader, a data set, {"train": …, "validation": …}
    load_data(images.name, "train", validation=0.1)      # as from a file: cut, limited, resized, streamed

The name has a digest of the images, labels and classes. So a training that is repeated with other images is another
recipe, and is refused. The images themselves are in memory and known to this process alone, inside the `with`.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import datasets
from hardtack.data.datasets import Dataset
from hardtack.data.given import TENSORS, TakesGrey, as_samples
from hardtack.data.given.arrays import is_array
from hardtack.data.given.samples import Samples
from hardtack.data.settings import DataConfig, SyntheticConfig
from hardtack.data.source import SPLIT_WORDS, Splits, Stored, numbered_classes
from hardtack.data.stores import Resident

GIVEN = "given:"
_kept: dict[str, dict[str, Stored]] = {}


class KeptImages(NamedTuple):
    """The name of images, and their shape C×H×W."""

    name: str
    shape: tuple[int, ...]


@contextlib.contextmanager
def kept(data: Any, *, single: str = "train", takes_grey: TakesGrey | None = None) -> Iterator[KeptImages]:
    """Images under a name, inside. What has no splits is the split `single`, or `whole` for all of them."""
    parts = splits_of(data) if single == "train" else {}
    samples = {word: _samples(part, takes_grey) for word, part in parts.items()} if parts else {}
    samples = samples or {single: _samples(data, takes_grey)}
    name = GIVEN + _described(samples)
    before = _kept.get(name)
    _kept[name] = _stored(samples)
    try:
        yield KeptImages(name, tuple(next(iter(samples.values())).images.shape[1:]))
    finally:
        if before is None:
            _kept.pop(name, None)


def is_object(data: Any) -> bool:
    """Whether this is data itself, and not a name or the settings of a data set."""
    if data is None or isinstance(data, str | DataConfig):
        return False
    return not isinstance(data, Mapping) or any(map(_is_part, data.values()))


def splits_of(data: Any) -> dict[str, Any]:
    """The splits of `{"train": …, "validation": …}` (also of Hugging Face); none where it is something else."""
    if not isinstance(data, Mapping) or not any(map(_is_part, data.values())):
        return {}
    for word in data:
        if str(word) not in SPLIT_WORDS:
            hint = did_you_mean(str(word), SPLIT_WORDS)
            raise UserError(f"there is no split '{word}'{hint}: data to train on has train, and may have validation")
    parts = {SPLIT_WORDS[str(word)]: part for word, part in data.items()}
    if "train" not in parts:
        raise UserError(f"data to train on needs the split 'train', found {', '.join(map(str, data))}")
    return parts


def _is_part(value: Any) -> bool:
    """Whether this is data, and no setting of a data set."""
    if isinstance(value, list | tuple):
        return bool(value) and is_array(value[0])
    return not (value is None or isinstance(value, str | int | float | Mapping | SyntheticConfig))


def _samples(data: Any, takes_grey: TakesGrey | None) -> Samples:
    if not isinstance(data, Dataset):
        return as_samples(data, None, takes_grey)
    if not isinstance(data.store, Resident):
        raise UserError(
            f"{data.name} is read from disk while it is used; name it instead, so that a repeated call finds it: "
            f"data={{'name': '{data.name}'}}"
        )
    images = data.store.pixels[data.rows]
    return Samples(images, data.labels, data.classes, data.name, data.description)


def _described(samples: Mapping[str, Samples]) -> str:
    first = next(iter(samples.values()))
    kind = "arrays" if first.name == TENSORS else re.sub(r"[^\w.]+", "-", first.name).strip("-")
    digest = hashlib.sha256()
    for split, part in samples.items():
        facts = (split, tuple(part.images.shape), str(part.images.dtype), part.classes)
        digest.update(repr(facts).encode())
        for tensor in (part.images, part.labels):
            digest.update(_bytes(tensor))
    shape = "x".join(map(str, first.images.shape))
    return f"{kind}-{shape}-{digest.hexdigest()[:16]}"


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _stored(samples: Mapping[str, Samples]) -> dict[str, Stored]:
    named = next((part.classes for part in samples.values() if part.classes), ())
    counted = numbered_classes(*(part.labels for part in samples.values()))
    classes = named if len(named) >= len(counted) else counted
    return {
        split: Stored(
            part.images.cpu(), part.labels.cpu(), classes, note="; ".join(filter(None, ("given in Python", part.note)))
        )
        for split, part in samples.items()
    }


@datasets.register(
    "given", path="DIGEST", help="given:DIGEST: images that a call in Python brought along; no file has them"
)
def read_given(config: DataConfig, path: str) -> Splits:
    stored = _kept.get(GIVEN + path)
    if stored is None:
        raise UserError(
            f"the images of '{config.name}' were given in Python and are in no file: name the data, for example "
            "data=folder:PATH, or in Python give them again, data=(x, y)"
        )
    splits: Splits = {split: (lambda split=split: stored[split]) for split in stored}  # type: ignore[misc]
    if "validation" in splits:  # what is called so is meant for it, also where no test split is given
        splits.setdefault("test", splits["validation"])
    return splits
