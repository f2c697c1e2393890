"""Executor `here`: this process computes every piece."""

from hardtack.base.registry import executors
from hardtack.base.runtime import Runtime
from hardtack.engine.executors.executor import Executor


@executors.register("here", help="this process, on one device")
class Here(Executor):
    """This process computes every piece."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
