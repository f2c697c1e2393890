"""Freed memory is kept: later passes take no new pages from the system."""

import os
import subprocess
import sys

import pytest

from hardtack.base.allocator import keep_freed_memory

FAULTS = """
import resource, sys
import torch
from hardtack.base.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def passes(count):
    for _ in range(count):
        held = [torch.ones(2**22) for _ in range(6)]  # 16 MB each: more than glibc would keep
        del held
passes(20)  # the heap settles
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
passes(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word, **environment):
    words = [sys.executable, "-c", FAULTS, word]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="another C library")
def test_later_passes_take_no_new_pages():
    assert faults("keep") < 100 < 10_000 < faults("")


@pytest.mark.skipif(not keep_freed_memory(), reason="another C library")
def test_what_the_user_set_stays():
    assert faults("keep", MALLOC_MMAP_THRESHOLD_="65536") > 10_000


def test_another_c_library(monkeypatch):
    monkeypatch.setattr(os, "confstr", lambda name: None)
    keep_freed_memory.cache_clear()
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
