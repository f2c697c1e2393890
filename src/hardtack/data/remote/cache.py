"""Remote objects kept on the local disk: $HARDTACK_CACHE/remote, or ~/.cache/hardtack/remote.

A file is named by a digest of its URL and version, so that no name of a listing becomes a path, and another version is
another file. It is written whole and renamed into place, so that many processes may fetch the same object at once. The
SHA-256 beside it is compared when a process uses the file for the first time; a damaged file is fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hardtack.base import limits
from hardtack.base.digests import file_digest, json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import cache_folder, is_disk_full, no_space, write_text
from hardtack.data.remote.connection import Version, filesystem, version_of
from hardtack.data.remote.faults import RemoteError, explained

UNKNOWN_BYTES = 16 * 2**30  # of an object whose size the store does not say
_verified: set[tuple[str, int, int]] = set()  # (path, size, time) of cached files whose digest this process compared


def cached_file(url: str, version: Version) -> Path:
    """The local copy of an object, fetched if there is none that is whole."""
    path = _place(url, version)
    if not _is_whole(path):
        _fetch(url, version, path)
    return path


def cached_bytes(url: str, version: Version) -> bytes:
    """The bytes of a small object, from its local copy; compared with their digest every time."""
    path = _place(url, version)
    with contextlib.suppress(OSError, UserError):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() == _stored_digest(path):
            return data
    if version.size > limits.UNPACKED_BYTES:
        raise UserError(f"{url} has {version.size} bytes, and the limit for an image is {limits.UNPACKED_BYTES}")
    _fetch(url, version, path)
    return path.read_bytes()


def is_cached(url: str, version: Version) -> bool:
    """Whether there is a local copy, looked up without reading it."""
    return _place(url, version).is_file()


def _place(url: str, version: Version) -> Path:
    name = json_digest([url, version.text])
    return cache_folder() / "remote" / name[:2] / name


def _is_whole(path: Path) -> bool:
    try:
        state = path.stat()
        key = (str(path), state.st_size, state.st_mtime_ns)
        if key not in _verified:
            if file_digest(path) != _stored_digest(path):
                return False
            _verified.add(key)
    except (OSError, UserError):
        return False
    return True


def _stored_digest(path: Path) -> str | None:
    facts = limits.read_json(path.with_name(f"{path.name}.json"), limit=2**16)
    return facts.get("sha256") if isinstance(facts, dict) else None


def _fetch(url: str, version: Version, path: Path) -> None:
    connection = filesystem(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:16]}.", suffix=".part")
        os.close(handle)
    except OSError as error:
        raise UserError(f"{path.parent} cannot be written ({error}); set HARDTACK_CACHE to another folder") from None
    try:
        with explained(url):
            try:
                connection.get_file(url, temporary, callback=_bounded(url, version))
            except Exception as error:
                if is_disk_full(error):
                    raise no_space(path) from None
                raise
        digest = _check(url, version, Path(temporary))
        facts = {"url": url, **version._asdict(), "sha256": digest}
        write_text(path.with_name(f"{path.name}.json"), json.dumps(facts))
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _bounded(url: str, version: Version) -> Any:
    """A callback that ends a transfer which sends more than the store said."""
    from fsspec.callbacks import Callback

    limit = version.size if version.size >= 0 else UNKNOWN_BYTES

    class Bounded(Callback):
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            if self.value > limit:
                raise RemoteError(f"{url} sends more than {limit} bytes; it was not kept")

    return Bounded()


def _check(url: str, version: Version, file: Path) -> str:
    """SHA-256 of a fetched file, which must be of the version that was listed."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(2**20):
            sha256.update(block)
            md5.update(block)
    size = file.stat().st_size
    changed = version.size >= 0 and size != version.size
    # the etag of an object that was sent to S3 at once is its MD5: no further question is needed
    if changed or (version.etag != md5.hexdigest() and version_of(url).text != version.text):
        raise RemoteError(f"{url} changed while it was used, or arrived in part; run the command again")
    return sha256.hexdigest()
