"""What a data set that is decoded while it is read contains: a digest of its images, for ids of measurements.

Images in memory are digested as they are. Of images on disk every stored byte of the images in question is read and
digested (about a second for a gigabyte in the page cache), because names, sizes and times of files do not change with
their pixels. Readers whose stored bytes cannot be asked for are decoded. Images that can only be read in order are
digested during the walk that finds their labels. Remote images are known by what the store says about their objects
(etag and size, or time and size): a worker must not fetch a whole set to learn its id, and an object that is no longer
of the version that was listed is refused when it is fetched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from torch import Tensor

from hardtack.base.cores import share_of_cores
from hardtack.data.datasets import Dataset
from hardtack.data.decode import pixel_bytes
from hardtack.data.source import EncodedImages, Images, VersionedImages
from hardtack.data.stores import InOrder, Joined, OnDisk, Store

_CHUNK = 64  # images that one thread digests at a time


@runtime_checkable
class DigestedSequence(Protocol):
    """Images in order whose digest is known since they were walked for their labels."""

    digest: str


def content_digest(data: Dataset) -> str | None:
    """SHA-256 of the images of a set that is not in memory; None for a set whose pixels are."""
    return _digest(data.store, data.rows)


def _digest(store: Store, rows: Tensor) -> str | None:
    if isinstance(store, OnDisk):
        return _of_images(store.images, rows.tolist())
    if isinstance(store, InOrder):
        known = store.sequence.digest if isinstance(store.sequence, DigestedSequence) else ""
        return known or _combined(hashlib.sha256(pixel_bytes(image)).digest() for image in store.sequence.walk())
    if isinstance(store, Joined):
        return _combined(
            hashlib.sha256(store.fetch(rows[at : at + 1]).numpy().tobytes()).digest() for at in range(len(rows))
        )
    return None


def _of_images(images: Images, rows: list[int]) -> str:
    read: Callable[[int], bytes] = (
        images.encoded if isinstance(images, EncodedImages) else lambda row: pixel_bytes(images.read(row))
    )

    if isinstance(images, VersionedImages) and rows and images.version(rows[0]) is not None:
        return _combined(hashlib.sha256(str(images.version(row)).encode()).digest() for row in rows)

    def work(start: int) -> list[bytes]:
        return [hashlib.sha256(read(row)).digest() for row in rows[start : start + _CHUNK]]

    with ThreadPoolExecutor(max_workers=min(16, 2 * share_of_cores())) as pool:
        parts = pool.map(work, range(0, len(rows), _CHUNK))
        return _combined(digest for part in parts for digest in part)


def _combined(digests: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for digest in digests:
        whole.update(digest)
    return whole.hexdigest()
