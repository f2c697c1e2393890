"""Web shards read in any order: a tar is a list of files whose places can be looked up once (see `tar_index`).

Walking shards from the first image to the last is for the network. On a disk it would decode everything once to learn
the labels, keep one process busy with decoding, and go over what was seen when a run is resumed; looked up, they behave
like a folder of files. Plain tars with samples `KEY.jpg` (png, webp) and `KEY.cls` are understood; anything else is
left to timm's walker. Of remote shards those that hold the images in question are fetched whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hardtack.base.errors import UserError
from hardtack.data.decode import decode_bytes
from hardtack.data.remote import Place, RemotePath, local_file
from hardtack.data.tar_index import index_of


class TarImages:
    """Encoded images inside tars, found by where they begin and how long they are."""

    def __init__(self, files: Sequence[Place], spans: np.ndarray) -> None:
        self.files, self.spans = files, spans  # N×3 int64: file, first byte, bytes

    def __len__(self) -> int:
        return len(self.spans)

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        file, start, length = self.spans[index].tolist()
        with local_file(self.files[file]).open("rb") as tar:
            tar.seek(start)
            data = tar.read(length)
        if len(data) < length:
            raise UserError(f"{self.where(index)}: the shard ends before the image does")
        return data

    def where(self, index: int) -> str:
        return f"image {index}, in {self.files[self.spans[index, 0]]}"

    def version(self, index: int) -> str | None:
        number, start, _ = self.spans[index].tolist()
        file = self.files[number]
        return f"{file.version.text}:{start}" if isinstance(file, RemotePath) else None


def index_shards(files: Sequence[Place]) -> tuple[TarImages, np.ndarray] | None:
    """(images, labels) of the shards in the order of their names and samples; None where they are of another kind."""
    places = [file.known() if isinstance(file, RemotePath) else file for file in files]
    with ThreadPoolExecutor(max_workers=8) as pool:
        shards = list(pool.map(index_of, places))
    indexes = [shard for shard in shards if shard is not None]
    if len(indexes) < len(places) or not places:
        return None
    numbers = np.repeat(np.arange(len(places)), [len(index.labels) for index in indexes])
    spans = np.column_stack([numbers, np.concatenate([index.spans for index in indexes])])
    return TarImages(places, spans), np.concatenate([index.labels for index in indexes])
