"""A remote file or folder with the part of `pathlib.Path` that the readers use. Making one asks nobody."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hardtack.base.errors import UserError
from hardtack.data.remote.address import SINGLE, check_relative, check_url, scheme_of
from hardtack.data.remote.cache import cached_file
from hardtack.data.remote.connection import Entry, Version, listing, listing_below, look_up, matches


@dataclass(frozen=True, order=False)
class RemotePath:
    """A URL; `entry` is what a listing says about it, None if it was not listed."""

    url: str
    entry: Entry | None = None

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{check_relative(name, self.url)}")

    def __lt__(self, other: RemotePath) -> bool:
        return self.url.split("/") < other.url.split("/")

    @property
    def name(self) -> str:
        path = self.url.partition("?")[0] if scheme_of(self.url) in SINGLE else self.url
        return path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.url.rpartition("/")[0])

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        return PurePosixPath(self.url.removeprefix(f"{folder.url}/"))

    def is_dir(self) -> bool:
        return self._entry().folder

    def is_file(self) -> bool:
        return not self._entry().folder

    def iterdir(self) -> Iterator[RemotePath]:
        return (RemotePath(f"{self.url}/{entry.name}", entry) for entry in listing(self._folder()))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        return (path for path in self.iterdir() if path.is_file() and fnmatch.fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """The files below; folders are left out."""
        below = (RemotePath(f"{self.url}/{entry.name}", entry) for entry in listing_below(self._folder()))
        return (path for path in below if fnmatch.fnmatchcase(path.name, pattern))

    @property
    def version(self) -> Version:
        return self._entry().version

    def known(self) -> RemotePath:
        """The same file with its version."""
        return self if self.entry is not None else RemotePath(self.url, look_up(self.url))

    def _entry(self) -> Entry:
        return self.entry if self.entry is not None else look_up(self.url)

    def check_listable(self) -> None:
        """Refuse a URL whose folders cannot be listed."""
        if scheme_of(self.url) in SINGLE:
            raise UserError(f"{self.url}: folders cannot be listed over http; name one .parquet, .tar or .npz file")

    def _folder(self) -> str:
        self.check_listable()
        return self.url


Place = Path | RemotePath


def remote_path(url: str) -> RemotePath:
    return RemotePath(check_url(url))


def matching(pattern: str) -> list[RemotePath]:
    """The remote files that a URL with wildcards names."""
    head, entries = matches(check_url(pattern))
    return [RemotePath(f"{head}/{entry.name}", entry) for entry in entries]


def local_file(place: Any) -> Path:
    """A file on the local disk: the place itself, or the local copy of a remote one, fetched if need be."""
    return cached_file(place.url, place.version) if isinstance(place, RemotePath) else Path(place)


def size_bytes(place: Place) -> int:
    """The size of a file; 0 if a remote store does not say."""
    return max(0, place.version.size) if isinstance(place, RemotePath) else place.stat().st_size
