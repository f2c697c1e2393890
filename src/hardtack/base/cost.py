"""What a plan prints: seconds, durations in words, and tables in plain text."""

from __future__ import annotations

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
