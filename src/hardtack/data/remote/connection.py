"""Listings and versions of remote objects, by fsspec. Each process connects anew: connections do not survive a fork."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

from hardtack.base.errors import UserError
from hardtack.data.remote.address import check_relative, scheme_of
from hardtack.data.remote.faults import explained

_ETAGS = ("ETag", "etag", "md5Hash", "Content-MD5", "content_md5", "blob_id")
_TIMES = ("LastModified", "mtime", "updated", "last_modified", "Last-Modified", "modified", "created")
_connections: dict[tuple[int, str], Any] = {}
_connecting = threading.Lock()


class Version(NamedTuple):
    """What a store says about one state of an object. `size` is −1 where it does not say."""

    etag: str
    size: int
    modified: str

    @property
    def text(self) -> str:
        """Changes with the object: the etag and size, or the time and size where the store has no etags."""
        return f"{self.etag or self.modified}:{self.size}"


# of fsspec's file systems that hardtack[remote] does not bring
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "hf": "huggingface_hub", "sftp": "paramiko"}


class Entry(NamedTuple):
    """One line of a listing: the name relative to the folder, whether it is a folder itself, and its version."""

    name: str
    folder: bool
    version: Version


def filesystem(url: str) -> Any:
    """fsspec's file system for a URL: one per process and scheme, shared by its threads."""
    key = (os.getpid(), scheme_of(url))
    with _connecting:
        if key not in _connections:
            try:
                import fsspec
            except ImportError:
                raise UserError(f"{url} needs the package 'fsspec': pip install 'hardtack[remote]'") from None
            try:
                # fsspec keeps one instance per thread and every listing for ever; both are ours to keep
                made = fsspec.filesystem(key[1], skip_instance_cache=True, use_listings_cache=False)
            except ImportError as error:
                package = _PACKAGES.get(key[1], "'hardtack[remote]'")
                raise UserError(f"{url} needs another package ({error}): pip install {package}") from None
            _connections[key] = made
        return _connections[key]


def version_of(url: str) -> Version:
    """The present version of one object."""
    return look_up(url).version


def look_up(url: str) -> Entry:
    """Whether a URL is a file or a folder, and its version."""
    with explained(url):
        facts = filesystem(url).info(url)
        return Entry("", facts.get("type") == "directory", _version(facts))


def listing(url: str) -> list[Entry]:
    """The files and folders directly in a folder, by name."""
    with explained(url):
        return _entries(url, filesystem(url).ls(url, detail=True))


def listing_below(url: str) -> list[Entry]:
    """All files in a folder and the folders in it, by name."""
    with explained(url):
        return [entry for entry in _entries(url, filesystem(url).find(url, detail=True).values()) if not entry.folder]


def matches(pattern: str) -> tuple[str, list[Entry]]:
    """The folder in front of the first wildcard, and the files below it that match a URL with wildcards."""
    head = pattern[: min(pattern.find(sign) for sign in "*?[" if sign in pattern)].rpartition("/")[0]
    with explained(pattern):
        found = filesystem(pattern).glob(pattern, detail=True).values()
        return head, [entry for entry in _entries(head, found) if not entry.folder]


def _entries(url: str, facts: Any) -> list[Entry]:
    base = filesystem(url)._strip_protocol(url).strip("/")
    entries = []
    for each in facts:
        path = str(each["name"]).lstrip("/")
        folder = each.get("type") == "directory"
        if path.rstrip("/") == base or (path.endswith("/") and not folder):
            continue  # the folder itself, or the empty object that some tools write for a folder
        if not path.startswith(f"{base}/"):
            raise UserError(f"{url}: the listing names '{path[:120]}', which is not inside of it; it was not read")
        entries.append(Entry(check_relative(path[len(base) + 1 :].rstrip("/"), url), folder, _version(each)))
    return sorted(entries, key=lambda entry: entry.name.split("/"))


def _version(facts: Any) -> Version:
    etag = next((str(facts[key]) for key in _ETAGS if facts.get(key)), "")
    time = next((str(facts[key]) for key in _TIMES if facts.get(key)), "")
    size = facts.get("size")
    return Version(etag.removeprefix("W/").strip('"'), int(size) if size is not None else -1, time)
