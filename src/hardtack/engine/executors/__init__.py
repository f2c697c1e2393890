"""Where pieces run: one file per executor, each registered in `executors`."""

from __future__ import annotations

from typing import cast

from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor, run_pieces

__all__ = ["Executor", "choose_executor", "run_pieces"]


def choose_executor(runtime: Runtime, *, shared: bool = True) -> Executor:
    """`torchrun` inside a launch of several processes, else `here`.

    Where the pieces are not `shared` on a disk, every process computes all of them for itself.
    """
    name = "torchrun" if shared and runtime.world_size > 1 else "here"
    return cast(Executor, executors.get(name).make(runtime))
