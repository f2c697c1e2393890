"""How long Triton compiles kernels that this machine has not run before, for a plan.

Triton keeps compiled kernels on disk. A plan that runs a model for the first time compiles them, and the run that is
planned finds them there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class NewKernels:
    """What was compiled anew."""

    seconds: float = 0.0
    count: int = 0

    def note(self, *, times: Any, cache_hit: bool, **_: Any) -> None:
        """What Triton says after each kernel; times are in microseconds."""
        if not cache_hit:
            self.seconds += times.total / 1e6
            self.count += 1


@contextlib.contextmanager
def new_kernels() -> Iterator[NewKernels]:
    """Count the kernels that are compiled inside the block; nothing where there is no GPU or no such Triton."""
    found = NewKernels()
    try:
        if not torch.cuda.is_available():
            raise ImportError
        from triton import knobs

        before = knobs.compilation.listener
    except (ImportError, AttributeError):  # an older Triton has no listeners
        yield found
        return

    def listen(**said: Any) -> None:
        found.note(**said)
        if before is not None:
            before(**said)

    knobs.compilation.listener = listen
    try:
        yield found
    finally:
        knobs.compilation.listener = before
