"""Where the images and labels of a tar shard lie: read from its headers once, kept in the cache folder.

The key of a kept index is the path, size and times of the shard, or the URL and version of a remote one. It is an npz
file of plain numbers, and is read as carefully as a file of a stranger: a cache folder may be shared.
"""

from __future__ import annotations

import contextlib
import tarfile
import zipfile
from array import array
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hardtack.base import limits
from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import atomic, cache_folder
from hardtack.data.remote import Place, RemotePath, local_file, size_bytes

IMAGES = ("jpg", "jpeg", "png", "webp")  # in the order in which they are preferred
_WORTH_KEEPING = 1000  # images of a local shard: fewer are looked up in a few hundredths of a second
_FORMAT = 1
_LABEL_BYTES = 64  # a number: a longer text is none


class TarIndex(NamedTuple):
    """Of each image in stored order: first byte and bytes (N×2 int64), and the label (N int64)."""

    spans: np.ndarray
    labels: np.ndarray


def index_of(shard: Place) -> TarIndex | None:
    """The index of a shard, from the cache or its headers; None if it is not a plain tar of labelled images."""
    shard = shard.known() if isinstance(shard, RemotePath) else shard
    try:
        kept = cache_folder() / "tar_index" / f"{_key(shard)}.npz"
    except OSError:
        return None
    index = _read_kept(kept, size_bytes(shard))
    if index is None:
        index = read_headers(local_file(shard))
        if index is not None and (isinstance(shard, RemotePath) or len(index.labels) >= _WORTH_KEEPING):
            _keep(index, kept)
    return index


def _key(shard: Place) -> str:
    if isinstance(shard, RemotePath):
        return json_digest([_FORMAT, shard.url, shard.version.text])
    state = shard.stat()
    return json_digest([_FORMAT, str(shard.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns])


def _keep(index: TarIndex, path: Path) -> None:
    with contextlib.suppress(OSError, UserError), atomic(path) as file:  # without a cache it is read again
        np.savez_compressed(file, spans=index.spans, labels=index.labels)


def _read_kept(path: Path, size: int) -> TarIndex | None:
    try:
        arrays = limits.read_npz(path, ["spans", "labels"])
        index = TarIndex(arrays["spans"], arrays["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # UserError is a ValueError
        return None
    spans, labels = index
    plain = spans.dtype == labels.dtype == np.int64 and spans.shape == (len(labels), 2) and labels.ndim == 1
    inside = plain and (spans >= 0).all() and (spans <= size).all() and (spans.sum(axis=1) <= size).all()
    return index if inside else None


# ---------------------------------------------------------------- the headers


class _Samples:
    """The samples of a shard in the order of their first members, as numbers: a shard may have a million."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.image, self.label = array("q"), array("q")  # place and size of each; −1 where there is none yet
        self.rank = array("b")  # of the image, by its suffix

    def add(self, key: str, suffix: str, place: int, size: int) -> None:
        number = self.numbers.setdefault(key, len(self.rank))
        if number == len(self.rank):
            self.image.extend((-1, -1))
            self.label.extend((-1, -1))
            self.rank.append(len(IMAGES))
        pair = slice(2 * number, 2 * number + 2)
        if suffix == "cls":
            self.label[pair] = array("q", (place, size))
        elif suffix in IMAGES and IMAGES.index(suffix) <= self.rank[number]:
            self.image[pair], self.rank[number] = array("q", (place, size)), IMAGES.index(suffix)


def read_headers(file: Path) -> TarIndex | None:
    """The index from the headers of a tar; None if it is compressed, damaged, or a sample has no image or label."""
    samples = _Samples()
    try:
        with tarfile.open(file, "r:") as tar:  # no compression: there would be nothing to look up
            for member in tar:
                if member.issparse():
                    return None
                if member.isfile():
                    folder, _, name = member.name.rpartition("/")
                    key, _, suffix = name.partition(".")
                    samples.add(f"{folder}/{key}", suffix.lower(), member.offset_data, member.size)
                if len(samples.rank) > limits.ROWS:
                    raise UserError(f"{file} has more than {limits.ROWS} samples, the limit for one shard")
                tar.members = []  # type: ignore[attr-defined]  # or tarfile would keep every header
        return _with_labels(samples, file)
    except UserError:
        raise
    except (tarfile.TarError, OSError, ValueError, OverflowError):
        return None


def _with_labels(samples: _Samples, file: Path) -> TarIndex | None:
    images = np.array(samples.image, dtype=np.int64).reshape(-1, 2)
    texts = np.array(samples.label, dtype=np.int64).reshape(-1, 2)
    if (images < 0).any() or (texts < 0).any():
        return None
    labels = np.empty(len(texts), dtype=np.int64)
    with file.open("rb") as tar:
        for number, (place, size) in enumerate(texts.tolist()):
            tar.seek(place)
            labels[number] = int(tar.read(min(size, _LABEL_BYTES)))
    return TarIndex(images, labels)
