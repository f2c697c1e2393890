"""Data sets on their way to machines with another disk: images on this disk are read from there through a server.

Images of a URL travel as their description, and every machine fetches them itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor

from hardtack.data.datasets import Dataset
from hardtack.data.source import Images, Sequence, VersionedImages
from hardtack.data.stores import OnDisk

Serve = Callable[[Any], Any]


def served(data: Any, serve: Serve) -> Any:
    """The data with `serve(images)` in place of images on this disk; images in memory and at URLs stay as they are.

    Sets that can only be read in stored order stay as they are, too: every machine must have their files.
    """
    if not isinstance(data, Dataset):
        return data
    moved = copy.copy(data)
    moved.workers = 0  # processes of a decoder cannot ask the server
    if isinstance(data.store, OnDisk) and _is_local(data.store.images):
        moved.store = OnDisk(serve(data.store.images), data.store.size, data.store.shape)
    if data.original is not None and _is_local(data.original.images):
        moved.original = data.original._replace(images=serve(data.original.images))
    return moved


def _is_local(images: Tensor | Images | Sequence) -> bool:
    """Whether the images are files of this disk that can be read in any order; remote ones have a version."""
    if isinstance(images, Tensor | Sequence):
        return False
    return not (isinstance(images, VersionedImages) and len(images) and images.version(0) is not None)
