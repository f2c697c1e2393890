"""Whatever timm's readers open: `hfds/NAME` (Hugging Face hub), `wds/PATH` (web shards), `tfds/NAME`.

hfds is read at random like any other set, and so are plain web shards on disk (see `tar_shards`). Other shards, tfds
and hfids can only be walked from the first image to the last: a set that fits in memory is walked once and then behaves
like any other; a larger one is streamed in stored order, shuffled inside windows of images (see `sampler`). Their
labels are known only after one walk, which happens when the set is opened.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import read_json
from hardtack.base.registry import datasets
from hardtack.base.trust import file_inside
from hardtack.data.damage import reported_by_timm, settle_damage
from hardtack.data.decode import pixel_bytes, read_file, rgb_array
from hardtack.data.paths import find_place
from hardtack.data.remote import Place, RemotePath, local_file
from hardtack.data.remote.address import check_relative
from hardtack.data.source import SPLIT_WORDS, WHOLE, Splits, Stored, integer_labels, numbered_classes
from hardtack.data.tar_shards import index_shards

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

KINDS = ("hfds", "wds", "tfds", "hfids")
_HUB = "pip install 'hardtack[hub]'"


class HubImages:
    """A map-style timm reader (hfds)."""

    def __init__(self, reader: Any, name: str) -> None:
        self.reader, self.name = reader, name

    def __len__(self) -> int:
        return len(self.reader)

    def read(self, index: int) -> np.ndarray:
        with self.reader[index][0] as file:
            return read_file(file, self.where(index))

    def where(self, index: int) -> str:
        return f"image {index} of {self.name}"


class WalkedImages:
    """An iterable timm reader: made anew for every walk, so no walk disturbs another."""

    def __init__(self, make: Callable[[], Any], count: int, digest: str) -> None:
        self.make, self.count, self.digest = make, count, digest

    def __len__(self) -> int:
        return self.count

    def walk(self) -> Iterator[np.ndarray]:
        for image, _ in self.make():
            yield rgb_array(image)


@datasets.register(
    "timm",
    path="PATH",
    help="timm:hfds/NAME, timm:wds/PATH, timm:tfds/NAME: what timm's readers open ('timm:' may go)",
)
def read_timm(config: DataConfig, path: str) -> Splits:
    kind, _, name = path.partition("/")
    if kind not in KINDS or not name:
        raise UserError(
            f"timm: '{path}' should be KIND/NAME, KIND one of {', '.join(KINDS)}{did_you_mean(kind, KINDS)}"
        )
    if kind == "wds":
        return _web_shards(config, name)
    if kind == "hfds":
        return _hub(config, name)
    return _by_asking(config, kind, name)


# ---------------------------------------------------------------- Hugging Face hub


def _hub(config: DataConfig, name: str) -> Splits:
    try:
        import datasets as hub
    except ImportError as error:
        raise UserError(f"hfds/{name} needs the package 'datasets' ({error}): {_HUB}") from None
    try:
        names = hub.get_dataset_split_names(name)
    except Exception as error:  # the hub's errors are many: no network, no such set, no access
        raise UserError(f"hfds/{name} cannot be opened: {' '.join(str(error).split())[:300]}") from None
    splits = {SPLIT_WORDS[split]: split for split in names if split in SPLIT_WORDS}
    if not splits:
        raise UserError(f"hfds/{name} has the splits {', '.join(names)}; none is called train, validation or test")
    return {ours: (lambda theirs=theirs: _hub_split(config, name, theirs)) for ours, theirs in splits.items()}  # type: ignore[misc]


def _hub_split(config: DataConfig, name: str, split: str) -> Stored:
    import datasets as hub
    from timm.data.readers.reader_hfds import ReaderHfds  # create_reader would lower-case the name

    try:
        # opened once for its columns: the builder alone does not know those of a plain folder of parquet
        features = hub.load_dataset(name, split=split, cache_dir=config.root).features
        image = next((key for key, value in features.items() if isinstance(value, hub.Image)), "image")
        detected = next((key for key, value in features.items() if isinstance(value, hub.ClassLabel)), "label")
        label = config.label or detected
        if image not in features or label not in features:
            raise UserError(f"no image or label column '{label}' among {', '.join(features)}; set data.label")
        reader = ReaderHfds(name, root=config.root, split=split, input_key=image, target_key=label)
    except Exception as error:
        raise UserError(f"hfds/{name} ({split}): {' '.join(str(error).split())[:300]}") from None
    labels = integer_labels(reader.dataset[label][:], f"hfds/{name}:{label}")
    classes = tuple(getattr(features.get(label), "names", None) or numbered_classes(labels))
    return Stored(HubImages(reader, f"hfds/{name}"), labels, classes)


# ---------------------------------------------------------------- web shards


def _web_shards(config: DataConfig, name: str) -> Splits:
    root = find_place(name, config.root, kind="wds")
    shards = _shards_by_split(root)
    folder = root if root.is_dir() else root.parent
    return {
        split: (lambda word=word, files=files: _shards(config, f"wds/{name}", folder, word, files))  # type: ignore[misc]
        for split, (word, files) in shards.items()
    }


def _shards(config: DataConfig, name: str, folder: Place, word: str, files: list[str]) -> Stored:
    """Plain tar files are read by position, others in order."""
    remote = isinstance(folder, RemotePath)
    indexed = index_shards([folder / file for file in files])
    if indexed is not None:
        labels = integer_labels(indexed[1], name) if len(indexed[1]) else torch.zeros(0, dtype=torch.int64)
        return Stored(indexed[0], labels, numbered_classes(labels), remote=remote)
    if isinstance(folder, RemotePath):
        raise UserError(
            f"{name}: remote shards must be plain tars, not compressed, with KEY.jpg (png, webp) and KEY.cls; copy "
            "shards of another kind to the disk"
        )
    try:
        import webdataset  # noqa: F401
    except ImportError:
        raise UserError(f"{name} needs the package 'webdataset': {_HUB}") from None
    damaged: list[str] = []
    stored = _walked(_walker(folder, word, damaged), name)
    note = settle_damage(damaged, name, skip=config.skip_damaged)
    return stored if not note else dataclasses.replace(stored, note="; ".join(filter(None, [stored.note, note])))


def _shards_by_split(root: Any) -> dict[str, tuple[str, list[str]]]:
    """timm's word for each split (a name in `_info.json`, or the shards' names joined by `::`), and its shards."""
    if (info := _info_file(root)) is not None:
        facts = _listed_splits(info)
        # labels of another kind are for timm to find
        plain = {name: [] if fact.get("alt_label") else list(fact["filenames"]) for name, fact in facts.items()}
        return {SPLIT_WORDS[name]: (name, plain[name]) for name in facts if name in SPLIT_WORDS}
    files = [root] if root.is_file() else sorted(root.glob("*.tar"))
    if not files:
        raise UserError(f"wds: {root} holds no .tar shards")
    shards: dict[str, list[str]] = {}
    for file in files:
        words = re.split(r"[-_.]", file.stem.lower())
        split = next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), WHOLE)
        shards.setdefault(split, []).append(file.name)
    return {split: ("::".join(names), names) for split, names in shards.items()}


def _info_file(root: Any) -> Any:
    """The record of the splits in a folder of shards; None if it has none."""
    if root.is_file():
        return None
    found = {path.name: path for path in root.glob("*info.json") if path.is_file()}
    return found.get("_info.json") or found.get("info.json")


def _listed_splits(info: Any) -> dict[str, Any]:
    """The splits that a set of shards lists; every shard must lie in the folder of the set."""
    facts = read_json(local_file(info))
    splits = facts.get("splits", {}) if isinstance(facts, dict) else None
    if not isinstance(splits, dict) or not all(isinstance(fact, dict) for fact in splits.values()):
        raise UserError(f"{info} must hold an object with 'splits'")
    for fact in splits.values():
        names = fact.get("filenames")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{info}: 'filenames' must be a list of the names of shards")
        for name in names:
            check_relative(name, str(info)) if isinstance(info, RemotePath) else file_inside(info.parent, name)
    return splits


def _walker(folder: Path, split: str, damaged: list[str]) -> Callable[[], Any]:
    """Makes a walk; `damaged` receives the samples that the walk leaves out."""

    def make() -> Any:
        from timm.data import create_dataset

        made = create_dataset("wds/shards", root=str(folder), split=split, is_training=False)
        damaged.clear()
        with reported_by_timm(damaged):
            made.reader._lazy_init()  # the pipeline is built here, and calls back what it was built with
        return made

    return make


def _walked(make: Callable[[], Any], name: str) -> Stored:
    """One walk for the labels; what cannot be read there would be missing silently later."""
    values, whole = [], hashlib.sha256()
    try:
        for image, label in make():
            values.append(int(label))
            whole.update(hashlib.sha256(pixel_bytes(rgb_array(image))).digest())
    except Exception as error:
        raise UserError(f"{name} cannot be read: {' '.join(str(error).split())[:300]}") from None
    labels = integer_labels(values, name) if values else torch.zeros(0, dtype=torch.int64)
    return Stored(
        WalkedImages(make, len(values), whole.hexdigest()),
        labels,
        numbered_classes(labels),
        "read in stored order only",
    )


# ---------------------------------------------------------------- tfds, hfids


def _by_asking(config: DataConfig, kind: str, name: str) -> Splits:
    """Readers that say only on opening which splits there are: each is tried when it is asked for."""

    def opener(split: str) -> Stored:
        def make() -> Any:
            from timm.data import create_dataset

            return create_dataset(f"{kind}/{name}", root=config.root, split=split, is_training=False)

        try:
            make()
        except ImportError as error:
            need = _HUB if kind == "hfids" else "pip install tensorflow tensorflow-datasets"
            raise UserError(f"{kind}/{name} needs another package ({error}): {need}") from None
        except Exception as error:
            raise UserError(f"{kind}/{name} ({split}): {' '.join(str(error).split())[:300]}") from None
        return _walked(make, f"{kind}/{name}")

    return {"train": lambda: opener("train"), "test": lambda: opener("test")}
