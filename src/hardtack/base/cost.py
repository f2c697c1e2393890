"""What a plan measures and prints: seconds, memory, durations in words, and tables in plain text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hardtack.base.runtime import Runtime


def device_name(runtime: Runtime) -> str:
    device = runtime.torch_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call, with the time that the device takes."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(repeats):
        work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.monotonic() - began) / repeats


class Memory:
    """Peak memory since this object was made: of the process on a CPU, of torch's tensors on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before_mb = _resident_mb()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def peak_mb(self, factor: float) -> float:
        """On a CPU the growth is multiplied by `factor`, for batches smaller than the real ones."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        return self.before_mb + factor * (_resident_mb() - self.before_mb)


def _resident_mb() -> float:
    """The most memory this process has used; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def text_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with the columns aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
