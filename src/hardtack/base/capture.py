"""Replay a function of fixed-shape tensors as one CUDA graph: the cost of launching it becomes one launch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_WARM_CALLS = 3


def record(
    function: Callable[[], Any], *, stream: torch.cuda.Stream | None = None
) -> tuple[torch.cuda.CUDAGraph | None, Any]:
    """The launches of `function` as a graph, and what it returned; no graph where it runs, but cannot be recorded."""
    graph = torch.cuda.CUDAGraph()
    try:
        # other threads (a loader pinning memory) may go on with work of their own meanwhile
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            return graph, function()
    except RuntimeError as error:
        for one in (error, error.__context__):  # ending a recording that broke off raises an error of its own
            if isinstance(one, torch.OutOfMemoryError):
                raise one from None
        warnings.warn(
            "the model cannot be recorded as a CUDA graph: it waits for the device, or copies something there, while "
            f"it computes ({str(error).splitlines()[0]}); it runs step by step, which is slower",
            stacklevel=2,
        )
        return None, None


class Captured:
    """`function` with its launches recorded on the fourth call of a shape, and replayed from then on.

    The function must be free of host synchronisation and must read parameters in place (an optimiser's in-place
    updates are seen by the replay). The result lives in memory that the next call overwrites: use it before then.
    Inputs of another shape run as they are, and so does a function that cannot be recorded.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._refused = False
        self._inputs: list[Tensor] = []
        self._output: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        if self._graph is not None and self._fits(inputs):
            for static, value in zip(self._inputs, inputs, strict=True):
                static.copy_(value)
            self._graph.replay()
            return self._output
        self._calls += 1
        if self._refused or self._graph is not None or self._calls <= _WARM_CALLS:
            return self.function(*inputs)
        self._record(inputs)
        return self(*inputs)

    def _fits(self, inputs: tuple[Tensor, ...]) -> bool:
        return all(
            static.shape == value.shape and static.dtype == value.dtype
            for static, value in zip(self._inputs, inputs, strict=True)
        )

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = [value.clone() for value in inputs]
        with torch.cuda.device(inputs[0].device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.function(*self._inputs)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph, self._output = record(lambda: self.function(*self._inputs))
            self._refused = self._graph is None
