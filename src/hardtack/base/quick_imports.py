"""Importing large packages without the garbage collector, which finds nothing there and takes a seventh of the time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """For commands, around their imports of torch and what stands on it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
