"""Where pieces run: one file per executor, each registered in `executors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hardtack.base.config import build
from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor, run_pieces

__all__ = ["Executor", "choose_executor", "make_executor", "run_pieces"]


def choose_executor(runtime: Runtime, *, shared: bool = True) -> Executor:
    """`torchrun` inside a launch of several processes, else `here`.

    Where the pieces are not `shared` on a disk, every process computes all of them for itself.
    """
    name = "torchrun" if shared and runtime.world_size > 1 else "here"
    return cast(Executor, executors.get(name).make(runtime))


def make_executor(name: str, settings: Mapping[str, Any], runtime: Runtime) -> Executor:
    """The executor of this name with its settings, checked by the executor's own dataclass `settings`."""
    make: Any = executors.get(name).make
    return cast(Executor, make(runtime, build(make.settings, settings)))
