"""Models that change their input in place: they are given copies, and whoever calls them is told.

A module that writes `x -= mean` changes the caller's images and the points of a search; every later pass then sees
other images than those that are reported. The first call inside `guard_input` gets a copy. If the model leaves it as
it was, the guard is removed and costs nothing more; otherwise every call gets a copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

CHANGES_INPUT = (
    "the model changes its input in place; it was given copies of the images, so that the numbers are about the images "
    "themselves: write x = x - mean instead of x -= mean, and use no inplace=True on the input"
)


class InputGuard:
    """What is known about a model inside `guard_input`."""

    def __init__(self) -> None:
        self.changed = False  # whether the model was seen to change its input
        self.decided = False
        self.pair: tuple[Tensor, Tensor] | None = None  # the images and the copy that the model got


@contextlib.contextmanager
def guard_input(model: nn.Module) -> Iterator[InputGuard]:
    """Inside the block a model that changes its input in place gets copies of it."""
    guard = InputGuard()

    # functions, not methods: a deep copy of the model shares them
    def copy_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given or not isinstance(given[0], Tensor) or (guard.decided and not guard.changed):
            return None
        copy = given[0].clone()
        guard.pair = None if guard.decided or _captured(copy) else (given[0], copy)
        return (copy, *given[1:])

    def compare(module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        if guard.pair is not None:
            guard.changed = is_changed(*guard.pair)
            guard.decided, guard.pair = True, None
            if not guard.changed:
                remove()

    handles = [model.register_forward_pre_hook(copy_input, prepend=True), model.register_forward_hook(compare)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    try:
        yield guard
    finally:
        remove()


@torch.no_grad()
def is_changed(before: Tensor, after: Tensor) -> bool:
    """Whether any value differs; NaN equals NaN."""
    return bool(((before != after) & ~(before.isnan() & after.isnan())).any())


def _captured(x: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, in which no value can be compared."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()
