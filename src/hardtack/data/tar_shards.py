"""Web shards on disk, read in any order: a tar is a list of files whose places can be looked up once.

Walking shards from the first image to the last is for the network. On a disk it would decode everything once to learn
the labels, keep one process busy with decoding, and go over what was seen when a run is resumed; looked up, they behave
like a folder of files. Plain tars with samples `KEY.jpg` (png, webp) and `KEY.cls` are understood; anything else is
left to timm's walker.
"""

from __future__ import annotations

import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hardtack.data.decode import decode_bytes

IMAGES = ("jpg", "jpeg", "png", "webp")


class TarImages:
    """Encoded images inside tars, found by where they begin and how long they are."""

    def __init__(self, files: list[Path], spans: np.ndarray) -> None:
        self.files, self.spans = files, spans  # N×3 int64: file, first byte, bytes

    def __len__(self) -> int:
        return len(self.spans)

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        file, start, length = self.spans[index].tolist()
        with self.files[file].open("rb") as tar:
            tar.seek(start)
            return tar.read(length)

    def where(self, index: int) -> str:
        return f"image {index}, in {self.files[self.spans[index, 0]]}"


class _Shard(NamedTuple):
    spans: list[tuple[int, int]]
    labels: list[int]


def index_shards(files: list[Path]) -> tuple[TarImages, list[int]] | None:
    """(images, labels) of the shards in the order of their names and samples; None where they are of another kind."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        shards = list(pool.map(_index, files))
    readable = [shard for shard in shards if shard is not None]
    if len(readable) < len(files) or not files:
        return None
    spans = [(number, *span) for number, shard in enumerate(readable) for span in shard.spans]
    labels = [label for shard in readable for label in shard.labels]
    return TarImages(files, np.array(spans, dtype=np.int64).reshape(-1, 3)), labels


def _index(file: Path) -> _Shard | None:
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    spans, labels = [], []
    try:
        with tarfile.open(file, "r:") as tar:  # no compression: there would be nothing to look up
            for member in tar:
                if member.isfile():
                    folder, _, name = member.name.rpartition("/")
                    key, _, suffix = name.partition(".")
                    samples.setdefault(f"{folder}/{key}", {})[suffix.lower()] = member
            for parts in samples.values():
                image = next((parts[suffix] for suffix in IMAGES if suffix in parts), None)
                text = tar.extractfile(parts["cls"]) if "cls" in parts else None
                if image is None or text is None:
                    return None
                spans.append((image.offset_data, image.size))
                labels.append(int(text.read(64)))  # a number: a longer text is none
    except (tarfile.TarError, OSError, ValueError):
        return None
    return _Shard(spans, labels)
