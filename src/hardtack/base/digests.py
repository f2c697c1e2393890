"""SHA-256 digests of settings, columns and files: names that change with everything they cover."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np  # imported where columns are digested: listing names needs no numpy

_BLOCK = 2**20


def json_text(value: Any) -> str:
    """The value as JSON with sorted keys; what JSON does not know becomes text."""
    return json.dumps(value, sort_keys=True, default=str)


def json_digest(value: Any) -> str:
    """SHA-256 of the value as JSON."""
    return hashlib.sha256(json_text(value).encode()).hexdigest()


def columns_digest(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the names and values of columns; equal before they are written as parquet and after."""
    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(columns):
        values = np.asarray(columns[name])
        digest.update(f"{name}\0{len(values)}\0".encode())
        if values.dtype.kind in "OUS":
            digest.update(json.dumps([None if value is None else str(value) for value in values.tolist()]).encode())
        else:
            digest.update(f"{values.dtype.str}\0".encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
