"""The loss of a micro-batch and its gradient: step by step, or as one CUDA graph without a compiler.

Both add to the `.grad` of the objective's parameters. A graph writes gradients and parts to memory that its next replay
overwrites, which is why the trainer uses them at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from hardtack.base.capture import record
from hardtack.base.runtime import Runtime
from hardtack.models.fast_layers import FastLayers, compile_layers
from hardtack.objectives.contract import Objective
from hardtack.training.acceleration import compiled, synchronised
from hardtack.training.gradient_checks import require_gradient
from hardtack.training.python_state import State, own_state, whole_state
from hardtack.training.recipe import TrainConfig

_WARM_CALLS = 3  # that run step by step before the graph is recorded: kernels are chosen and memory is laid out


class GradientFunction(Protocol):
    """Adds the gradient of a micro-batch to `.grad`, and returns the parts of its loss."""

    def __call__(self, x: Tensor, y: Tensor, prepared: dict[str, Any], *, last: bool) -> dict[str, Tensor]:
        """`last`: of the micro-batches of an update, after which processes exchange gradients."""


def accelerate(objective: Objective, runtime: Runtime, config: TrainConfig) -> GradientFunction:
    """How the trainer takes gradients: a CUDA graph in one process on a GPU, or a compiled or distributed objective."""
    if config.checkpoint_blocks and runtime.captures and runtime.compile is None:
        # activations that are computed again ask for the random state, which a recording does not allow
        runtime = dataclasses.replace(runtime, compile=True)
    objective.accelerate(runtime)
    if runtime.captures and not runtime.compiles and runtime.world_size == 1:
        return RecordedLossGradient(objective, runtime, accumulate=config.accumulate)
    compute = compiled(objective, runtime, accumulate=config.accumulate)
    return LossGradient(compute, runtime, accumulate=config.accumulate)


class LossGradient:
    """Step by step. `compute` is the objective, or what it became by compilation and distribution."""

    def __init__(self, compute: Callable[..., dict[str, Tensor]], runtime: Runtime, *, accumulate: int) -> None:
        self.compute, self.runtime, self.accumulate = compute, runtime, accumulate

    def __call__(self, x: Tensor, y: Tensor, prepared: dict[str, Any], *, last: bool) -> dict[str, Tensor]:
        """The parts of the loss. After the `last` micro-batch of an update, processes exchange gradients."""
        with self.runtime.arithmetic(), synchronised(self.compute, last=last):
            parts = self.compute(x, y, **prepared)
        with self.runtime.arithmetic(autocast=False):
            (require_gradient(parts["loss"]) / self.accumulate).backward()
        return parts


class RecordedLossGradient:
    """The same as a CUDA graph, recorded on the fourth call of a shape and replayed from then on.

    The objective must be free of host synchronisation, and what changes from step to step must come in through its
    tensors. `layers` is entered around what is computed or recorded. Calls of another shape, and objectives that cannot
    be recorded, run step by step.
    """

    def __init__(
        self, objective: Objective, runtime: Runtime, *, accumulate: int,
        layers: Callable[[], AbstractContextManager[Any]] = FastLayers,
    ) -> None:  # fmt: skip
        self.objective, self.accumulate, self.layers = objective, accumulate, layers
        self._plain = LossGradient(objective, runtime, accumulate=accumulate)
        self._calls = 0
        self._refused = False
        self._before: State = ()  # what is outside of tensors, before the second step that is not recorded
        self._state: State = ()  # the objective's own while it was recorded
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: dict[str, Any] = {}
        self._parts: dict[str, Tensor] = {}
        self._gradients: list[tuple[Tensor, Tensor]] = []  # parameters, and where a replay leaves their gradients
        # one stream for all calls: a backward pass runs on the streams of its forward pass, and those of earlier calls
        # may not take part in a recording
        self._stream = torch.cuda.Stream()

    def __call__(self, x: Tensor, y: Tensor, prepared: dict[str, Any], *, last: bool) -> dict[str, Tensor]:
        inputs = {"x": x, "y": y, **prepared}
        if self._graph is None and not self._refused:
            self._prepare(inputs)
        if self._graph is not None and self._fits(inputs):
            return self._replay(inputs)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            parts = self._first(x, y, prepared) if self._calls == 1 else self._step_by_step(x, y, prepared)
        torch.cuda.current_stream().wait_stream(self._stream)
        return parts

    def _prepare(self, inputs: dict[str, Any]) -> None:
        """Record the graph when its time has come."""
        self._calls += 1
        if self._calls == 2:  # what the first pass sets up lazily may change
            self._before = whole_state(self.objective)
        elif self._calls > _WARM_CALLS and self._before != whole_state(self.objective):
            self._refused = True
            warnings.warn(
                "the objective or the model changes attributes that are no tensors, or draws from random or numpy, in "
                "every step; such steps are not recorded as a CUDA graph and run one by one, which is slower",
                stacklevel=2,
            )
        elif self._calls > _WARM_CALLS:
            self._record(inputs)

    def _step_by_step(self, x: Tensor, y: Tensor, prepared: dict[str, Any]) -> dict[str, Tensor]:
        with self.layers():
            return self._plain(x, y, prepared, last=True)

    def _first(self, x: Tensor, y: Tensor, prepared: dict[str, Any]) -> dict[str, Tensor]:
        """Without `layers` from now on if they cannot do what the objective asks for, such as a second derivative."""
        if self.layers is FastLayers and self._plain.runtime.precision == "bf16":
            compile_layers(self.objective.model, torch.bfloat16)
        try:
            return self._step_by_step(x, y, prepared)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            self.layers = contextlib.nullcontext
            for parameter in self.objective.parameters():
                parameter.grad = None
            return self._step_by_step(x, y, prepared)

    def _fits(self, inputs: dict[str, Any]) -> bool:
        same = inputs.keys() == self._inputs.keys() and own_state(self.objective) == self._state
        return same and all(_shape(value) == _shape(inputs[name]) for name, value in self._inputs.items())

    def _replay(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        assert self._graph is not None
        with torch.no_grad():
            for name, static in self._inputs.items():
                if isinstance(static, Tensor):
                    static.copy_(inputs[name])
        self._graph.replay()
        for static, gradient in self._gradients:
            self._hand_out(static, gradient)
        for name, static in self._inputs.items():
            if isinstance(static, Tensor) and static.grad is not None:  # a leaf of the objective's own
                inputs[name].grad = static.grad
        return dict(self._parts)

    def _hand_out(self, parameter: Tensor, gradient: Tensor) -> None:
        if self.accumulate == 1:
            parameter.grad = gradient
        elif parameter.grad is None:
            parameter.grad = gradient.clone()
        else:
            parameter.grad += gradient

    def _record(self, inputs: dict[str, Any]) -> None:
        """Record the graph. Nothing is computed, so that batch norm counts no batch twice."""
        self._state = own_state(self.objective)
        self._inputs = {name: _copy(value) for name, value in inputs.items()}
        x, y, *_ = self._inputs.values()
        prepared = {name: value for name, value in self._inputs.items() if name not in ("x", "y")}
        parameters = list(self.objective.parameters())
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None

        def compute() -> dict[str, Tensor]:
            with self.layers():
                return {name: part.detach() for name, part in self._plain(x, y, prepared, last=True).items()}

        self._stream.wait_stream(torch.cuda.current_stream())
        self._graph, parts = record(compute, stream=self._stream)
        torch.cuda.current_stream().wait_stream(self._stream)
        if self._graph is not None:
            self._parts = parts
            self._gradients = [(each, each.grad) for each in parameters if each.grad is not None]
        self._refused = self._graph is None
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


def _shape(value: Any) -> Any:
    """What must be equal for a graph to fit: of tensors shape and type, of other values the value."""
    return (value.shape, value.dtype) if isinstance(value, Tensor) else value


def _copy(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
