"""Freed memory stays with the process: large blocks come from the heap, and the heap does not shrink."""

import ctypes
import os
import subprocess
import sys

import pytest

from hardtack.base.allocator import keep_freed_memory

# mallinfo2(3): the bytes of the heap, how many of them are free, and how many blocks are mapped one by one
BLOCKS = """
import ctypes, sys
from hardtack.base.allocator import keep_freed_memory
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "heap chunks fast mapped mapped_bytes a b used free top".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Info, ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = libc.mallinfo2()
blocks = [libc.malloc(8 << 20) for _ in range(20)]
mapped = libc.mallinfo2().mapped - before.mapped
for block in blocks:
    libc.free(block)
after = libc.mallinfo2()
print(mapped, (after.heap - before.heap) >> 20, after.free >> 20)
"""


def blocks(word, **environment):
    """Of 20 blocks of 8 MB: how many are mapped one by one; and MB by which the heap has grown, and free in the end."""
    words = [sys.executable, "-c", BLOCKS, word]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return tuple(map(int, done.stdout.split()))


glibc = pytest.mark.skipif(
    not keep_freed_memory() or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library"
)


@glibc
def test_large_blocks_are_kept_when_they_are_freed():
    assert blocks("")[:2] == (20, 0)
    mapped, _, free = blocks("keep")  # some blocks may lie where the heap was free before
    assert mapped == 0 and free >= 160


@glibc
def test_what_the_user_set_stays():
    assert blocks("keep", MALLOC_MMAP_THRESHOLD_="65536")[0] == 20
    assert blocks("keep", MALLOC_TRIM_THRESHOLD_="65536")[1] < 160


def test_another_c_library(monkeypatch):
    monkeypatch.setattr(os, "confstr", lambda name: None)
    keep_freed_memory.cache_clear()
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
