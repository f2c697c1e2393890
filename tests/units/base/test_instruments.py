"""The instruments of a plan: time that passes, memory that grows, and what a busy machine is called."""

import mmap
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hardtack.base.instruments import Instruments, Load, busy_note, process_age_s, slower_now, waited_for_cores_s
from hardtack.base.new_kernels import new_kernels

CPU = torch.device("cpu")


def test_the_clock_runs_and_the_peak_grows():
    tools = Instruments()
    began = tools.now()
    tools.begin_memory(CPU)
    before = tools.peak_mb(CPU)
    block = np.frombuffer(mmap.mmap(-1, 40 << 20), dtype=np.uint8)  # new pages: the heap may have kept freed ones
    block[:] = 1
    time.sleep(0.02)
    assert tools.finished(CPU).since(began).wall_s >= 0.02
    assert 30 < tools.peak_mb(CPU) - before < 80 and block[0] == 1
    del block
    assert tools.peak_mb(CPU) - before > 30, "a peak stays"


def test_a_process_of_its_own_counts_from_its_start():
    age = process_age_s()
    assert age > 0
    whole, part = Instruments(whole_process=True), Instruments()
    assert whole.now().since(whole.began).wall_s >= age - 0.1
    assert part.now().since(part.began).wall_s < 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count it")
def test_linux_says_how_long_a_process_waited():
    waited = waited_for_cores_s()
    assert waited is None or waited >= 0


@pytest.mark.parametrize(
    "load, spread, words",
    [
        (Load(0.0, 2, 9.0), 0.1, ""),  # what is known of this process counts, not the queue of the machine
        (Load(0.31, 2), 0.1, "this machine is busy: this process waited for a core 31% of the time"),
        (Load(0.31, 2), 0.6, "and repeated measurements differ by 60%"),
        (Load(None, 2, 9.0), 0.0, "9.0 processes want to run on 2 cores"),
        (Load(None, 2, 2.0), 0.0, ""),
        (Load(0.0, 2), 0.6, "repeated measurements differ by 60%: this machine is busy, or its speed changes"),
        (Load(0.0, 2, gpu_mb=30_000), 0.0, "this machine is busy: other processes hold 30,000 MB of the GPU"),
    ],
)
def test_what_is_said_of_a_busy_machine(load, spread, words):
    note = busy_note(load, spread)
    assert words in note and bool(words) == bool(note)


def test_how_much_slower_a_busy_machine_is():
    assert slower_now(Load(0.5)) == 2 and slower_now(Load(None)) == slower_now(Load(0.0)) == 1


def test_kernels_that_triton_compiles_anew_are_counted(monkeypatch):
    knobs = pytest.importorskip("triton.knobs")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    heard = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **said: heard.append(said))
    before = knobs.compilation.listener
    with new_kernels() as found:
        for total, hit in ((2_000_000, False), (500_000, False), (9_000_000, True)):
            times = SimpleNamespace(total=total)
            knobs.compilation.listener(src=None, metadata={}, metadata_group={}, times=times, cache_hit=hit)
    assert (found.seconds, found.count) == (2.5, 2) and len(heard) == 3, "a listener of the user's still hears all"
    assert knobs.compilation.listener is before
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with new_kernels() as found:
        assert knobs.compilation.listener is before
    assert found.seconds == 0
