"""Parts of a remote file, for readers that need only its end or one column."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO, Any

from hardtack.data.remote.cache import is_cached
from hardtack.data.remote.connection import Version, filesystem, version_of
from hardtack.data.remote.faults import RemoteError, explained
from hardtack.data.remote.path import Place, RemotePath, local_file

_BLOCK = 256 * 1024


@contextlib.contextmanager
def open_ranges(place: Place) -> Iterator[Any]:
    """A file to read from: a path if it is local or cached; else a remote file of which blocks are fetched.

    A server that cannot send ranges is asked for the whole file.
    """
    if not isinstance(place, RemotePath):
        yield place
        return
    version = place.version
    file = None if is_cached(place.url, version) else _open(place.url, version)
    if file is None:
        yield local_file(place)
        return
    with file:
        yield file


def _open(url: str, version: Version) -> IO[bytes] | None:
    with explained(url):
        connection = filesystem(url)
        if version.size < 0:
            return None
        file: Any = connection.open(url, "rb", block_size=_BLOCK, cache_type="readahead")
        try:
            file.seek(-1, 2)
            file.read(1)
        except (ValueError, OSError):  # no ranges
            file.close()
            return None
        if version_of(url).text != version.text:
            raise RemoteError(f"{url} changed since it was listed; run the command again")
        return file
