"""What a plan measures with: a clock that knows how long this process was kept waiting, and a memory meter.

On a busy machine a step takes longer than it would by itself. Linux counts how long the threads of a process were ready
to run and had to wait for a core; a plan subtracts this on a CPU, and says that the machine is busy. Tests replace the
instruments by a clock and a meter of their own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from hardtack.base.cores import usable_cores

BUSY_SHARE = 0.05  # of the time that this process waited for a core
UNSTEADY = 0.25  # distance of the quartiles of repeated measurements, as a share of their median
REPEATS, REPEATS_S = 5, 0.3  # of short work that is timed again and again
END_S = {"cpu": 0.5, "cuda": 0.9}  # until a process that has used torch has ended (benchmarks/plans.py)
_FOREIGN_MB = 1500  # of a GPU's memory: more than the context of one idle process


class Moment(NamedTuple):
    """Seconds of the clock, and how many of them this process has waited for a core (as far as the system says)."""

    wall_s: float
    delayed_s: float = 0.0

    def since(self, earlier: Moment) -> Moment:
        return Moment(self.wall_s - earlier.wall_s, self.delayed_s - earlier.delayed_s)


@dataclass(frozen=True)
class Load:
    """What else runs on this machine. `waited`: the share of the measured time in which no core was free.

    `gpu_mb` of the GPU's memory belong to other processes; `queue` processes want to run, on average of a minute.
    """

    waited: float | None = None
    cores: int = 1
    queue: float = 0.0
    gpu_mb: float = 0.0


class Instruments:
    """The clock and the memory meter of this machine. `whole_process`: both count from the start of the process."""

    def __init__(self, *, whole_process: bool = False) -> None:
        now = self.now()
        age = process_age_s() if whole_process else 0.0
        self.began = Moment(now.wall_s - age, 0.0 if whole_process else now.delayed_s)
        self.whole_process = whole_process

    def now(self) -> Moment:
        return Moment(time.perf_counter(), waited_for_cores_s() or 0.0)

    def finished(self, device: torch.device) -> Moment:
        """The moment at which the device has done all that it was asked for."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return self.now()

    def begin_memory(self, device: torch.device) -> None:
        """Peaks count from here on; in a process of its own they count from its start, as in the run itself."""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif not self.whole_process:
            _reset_peak()

    def peak_mb(self, device: torch.device) -> float:
        """Peak memory: of torch's tensors on a GPU, of the process (imports included) on a CPU."""
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) / 2**20
        return _peak_resident_mb()

    def end_s(self, device: torch.device) -> float:
        """From the last line of a command to the end of its process; 0 within a process that goes on."""
        return END_S.get(device.type, END_S["cpu"]) if self.whole_process else 0.0

    def load(self, device: torch.device) -> Load:
        """The load of the machine since the instruments were made."""
        queue = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        passed = self.now().since(self.began)
        known = waited_for_cores_s() is not None
        waited = passed.delayed_s / max(passed.wall_s, 1e-9) if known else None
        return Load(waited, usable_cores(), queue, _foreign_mb(device))


class Stopwatch:
    """Seconds that work takes on an idle machine, with the part of the device."""

    def __init__(self, instruments: Instruments, device: torch.device) -> None:
        self.instruments, self.device = instruments, device

    def now(self) -> Moment:
        return self.instruments.finished(self.device)

    def since(self, began: Moment) -> float:
        return idle_s(self.now().since(began), on_gpu=self.device.type == "cuda")

    def time(self, work: Callable[[], object]) -> float:
        began = self.now()
        work()
        return self.since(began)

    def steady(self, work: Callable[[], object], *, budget_s: float = REPEATS_S) -> tuple[float, float]:
        """The seconds of the first call, and the least of several: other processes only ever add to them."""
        first_s = self.time(work)
        each: list[float] = []
        while len(each) < REPEATS and (not each or sum(each) + min(each) <= budget_s):
            each.append(self.time(work))
        return first_s, min(each)


def idle_s(passed: Moment, *, on_gpu: bool) -> float:
    """The seconds that an idle machine would have taken. A GPU computes on while the process waits for a core."""
    return passed.wall_s if on_gpu else max(passed.wall_s - passed.delayed_s, 0.0)


def busy_note(load: Load, spread: float = 0.0) -> str:
    """A sentence where other processes or unsteady measurements make a plan less certain; empty on an idle machine.

    `spread`: the distance of the quartiles of repeated measurements, as a share of their median.
    """
    reasons = []
    if load.waited is not None and load.waited > BUSY_SHARE:
        reasons.append(f"this process waited for a core {load.waited:.0%} of the time")
    elif load.waited is None and load.queue > 1.25 * load.cores:
        reasons.append(f"{load.queue:.1f} processes want to run on {load.cores} cores")
    if load.gpu_mb > _FOREIGN_MB:
        reasons.append(f"other processes hold {load.gpu_mb:,.0f} MB of the GPU")
    if reasons:
        also = f", and repeated measurements differ by {spread:.0%}" if spread > UNSTEADY else ""
        return f"this machine is busy: {' and '.join(reasons)}{also}"
    if spread > UNSTEADY:
        return f"repeated measurements differ by {spread:.0%}: this machine is busy, or its speed changes"
    return ""


def slower_now(load: Load) -> float:
    """How many times as long things take as on an idle machine."""
    return 1 / max(1 - (load.waited or 0.0), 0.05)


# ---------------------------------------------------------------- what the system says


def waited_for_cores_s() -> float | None:
    """How long the thread of this process that waited longest was ready to run and had no core; None if not known."""
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return None
    waits = []
    for task in tasks:
        try:
            waits.append(int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[1]))
        except (OSError, IndexError, ValueError):  # the thread has ended, or the system does not count
            continue
    return max(waits) / 1e9 if waits else None


def process_age_s() -> float:
    """Seconds since this process was started, or the seconds it has computed where the system does not say."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # the peak since the start of the process is taken
        return


def _peak_resident_mb() -> float:
    """The most memory of this process since its start or the last reset; 0 where the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**10
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _foreign_mb(device: torch.device) -> float:
    """Memory of the GPU that is not of this process: everything in use but what torch has reserved and a context."""
    if device.type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return max(0.0, (total - free - torch.cuda.memory_reserved(device)) / 2**20)
