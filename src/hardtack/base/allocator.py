"""Memory that a pass of a model has freed is kept for the next one.

glibc returns large blocks to the system as soon as they are free, and the next pass of the same model asks for them
again, page by page, which costs small models a fifth or more of a pass (benchmarks/cpu_passes.py). Peak memory is the
same.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

# mallopt(3): the parameter, the variable by which a user sets it, and our value
_TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_", 1 << 30)  # freed bytes that are kept
_MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_", 32 << 20)  # larger blocks are mapped one by one; glibc's greatest


@functools.cache
def keep_freed_memory() -> bool:
    """Ask the allocator of this process to keep up to 1 GiB of freed memory; whether it is one that can be asked.

    What the user has set by an environment variable stays.
    """
    if not sys.platform.startswith("linux") or "glibc" not in _library():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = [each for each in (_TRIM_THRESHOLD, _MMAP_THRESHOLD) if each[1] not in os.environ]
    taken = [mallopt(parameter, value) for parameter, _, value in settings]
    return all(taken)


def _library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # another C library
        return ""
