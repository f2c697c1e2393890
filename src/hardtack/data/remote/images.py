"""The images of a remote folder: known by the listing, each fetched when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from hardtack.data.decode import decode_bytes
from hardtack.data.remote.cache import cached_bytes, is_cached
from hardtack.data.remote.connection import Version
from hardtack.data.remote.path import RemotePath

_AT_ONCE = 16  # objects that one process fetches at the same time


class RemoteImages:
    """Remote image files as columns: a listing of a million files must not be a million objects."""

    def __init__(self, root: RemotePath, files: Sequence[RemotePath]) -> None:
        self.root = root.url
        versions = [file.version for file in files]
        self.names = pa.array([file.relative_to(root).as_posix() for file in files], pa.large_string())
        self.etags = pa.array([version.etag for version in versions], pa.large_string())
        self.times = pa.array([version.modified for version in versions], pa.large_string())
        self.sizes = np.array([version.size for version in versions], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        return cached_bytes(self.where(index), self._version(index))

    def where(self, index: int) -> str:
        return f"{self.root}/{self.names[index].as_py()}"

    def version(self, index: int) -> str:
        return self._version(index).text

    def prefetch(self, rows: Sequence[int]) -> None:
        """Fetch what is not yet there of these images, many at a time."""
        missing = [row for row in rows if not is_cached(self.where(row), self._version(row))]
        if len(missing) > 1:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(missing))) as pool:
                for _ in pool.map(self._fetch, missing):  # an error of a thread is raised here
                    pass

    def _fetch(self, row: int) -> None:
        self.encoded(row)

    def subset(self, rows: Sequence[int]) -> RemoteImages:
        chosen = RemoteImages(RemotePath(self.root), [])
        chosen.names, chosen.etags, chosen.times = (each.take(rows) for each in (self.names, self.etags, self.times))
        chosen.sizes = self.sizes[rows]
        return chosen

    def _version(self, index: int) -> Version:
        return Version(self.etags[index].as_py(), int(self.sizes[index]), self.times[index].as_py())
