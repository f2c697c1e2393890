"""Compiling a long run while it trains: it starts from CUDA graphs at once, and what is faster stays.

torch.compile fuses what our kernels do not: networks with convolutions in their blocks, XCiT and RVT among them, gain a
sixth to two thirds, plain transformers nothing. Compiling the repeated blocks takes half a minute to a minute and a
half, in which training waits. So it is tried only where enough time is left at the pace of now: some steps are timed,
then the graphs are recorded again with compiled blocks, and after some steps more the slower of the two is dropped.
Where compilation fails, training goes on as before. Nothing is tried where other processes use the same GPU: what
steps take there says nothing about the two functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.limits import shorten
from hardtack.base.runtime import Runtime
from hardtack.base.shared_gpu import shares_gpu
from hardtack.data import Batch
from hardtack.models.compiled_blocks import CompiledBlocks, repeated_blocks
from hardtack.objectives.contract import Objective
from hardtack.training.loss_gradient import GradientFunction, RecordedLossGradient
from hardtack.training.recipe import TrainConfig

CONVOLVES_S, OTHERS_S = 240.0, 1800.0  # of training left: below this compiling cannot pay, or is not likely to
_BEFORE, _WARM, _TIMED = 20, 8, 20  # steps from graphs, steps that compile and record, steps that are timed

Note = Callable[[str], None]


class LaterCompilation:
    """Watches the steps of a run, and says from which function the next one takes its gradients."""

    def __init__(
        self, objective: Objective, runtime: Runtime, config: TrainConfig, gradient: GradientFunction, *, note: Note
    ) -> None:
        self.objective, self.runtime, self.config, self.note = objective, runtime, config, note
        self.recorded = gradient
        recorded_alone = isinstance(gradient, RecordedLossGradient) and not shares_gpu()
        self.done = runtime.compile is not None or not recorded_alone
        self._steps = 0
        self._since = 0.0
        self._before_s = 0.0
        self._compiled: _Compiled | None = None

    def after_step(self, current: GradientFunction, steps_left: int, batch: Batch) -> GradientFunction:
        """Call after every update with the gradient function of now; returns that of the next update."""
        if self.done:
            return current
        self._steps += 1
        if self._steps == _BEFORE:
            self._since = self._now()
        elif self._steps == _BEFORE + _TIMED:
            self._before_s = (self._now() - self._since) / _TIMED
            if steps_left * self._before_s < worth_s(self.objective.model):
                self.done = True
            else:
                return self._switch(batch)
        elif self._compiled is not None and self._compiled.failure:
            return self._back(self._compiled.failure)
        elif self._steps == _BEFORE + _TIMED + _WARM:
            self._since = self._now()
        elif self._steps == _BEFORE + _TIMED + _WARM + _TIMED:
            return self._decide(current, (self._now() - self._since) / _TIMED)
        return current

    def _switch(self, batch: Batch) -> GradientFunction:
        self.note("compiling the model's blocks, which takes about a minute, because this run is long")
        try:
            compiled = with_compiled_blocks(self.objective, self.runtime, self.config)
            if self.objective.adversary is not None:
                self.objective.adversary.compile_blocks(self.runtime)
                with self.runtime.arithmetic():
                    self.objective.adversary(batch.x, batch.y)
        except Exception as error:
            return self._back(_failed(error))
        self._compiled = _Compiled(self.recorded, compiled)
        return self._compiled

    def _decide(self, current: GradientFunction, after_s: float) -> GradientFunction:
        gain = self._before_s / after_s
        if gain <= 1.0:
            return self._back(f"compiled steps are no faster ({gain:.2f} ×): training goes on from CUDA graphs")
        self.done = True
        self.note(f"compiled: {gain:.2f} × as fast")
        assert self._compiled is not None
        return self._compiled.compiled

    def _back(self, why: str) -> GradientFunction:
        self.done = True
        self._compiled = None
        self.objective.accelerate(self.runtime)
        self.note(why)
        return self.recorded

    def _now(self) -> float:
        torch.cuda.synchronize()
        return time.monotonic()


def worth_s(model: nn.Module) -> float:
    """How many seconds of training must be left."""
    parts = [part for block in repeated_blocks(model) for part in block.modules()]
    return CONVOLVES_S if any(isinstance(part, nn.Conv2d) for part in parts) else OTHERS_S


def with_compiled_blocks(objective: Objective, runtime: Runtime, config: TrainConfig) -> GradientFunction:
    """The gradient as a graph that is recorded while the model's repeated blocks are compiled."""
    blocks = CompiledBlocks(objective.model)
    return RecordedLossGradient(objective, runtime, accumulate=config.accumulate, layers=lambda: blocks)


def _failed(error: Exception) -> str:
    """A compiler fails in many ways, and none may end a run of hours."""
    return f"compiling failed ({shorten(' '.join(str(error).split()))}): training goes on from CUDA graphs"


class _Compiled:
    """The compiled gradient while it is on trial: a call that fails is answered by the recorded one."""

    def __init__(self, recorded: GradientFunction, compiled: GradientFunction) -> None:
        self.recorded, self.compiled = recorded, compiled
        self.failure = ""

    def __call__(self, x: Tensor, y: Tensor, prepared: dict[str, Any], *, last: bool) -> dict[str, Tensor]:
        if not self.failure:
            try:
                return self.compiled(x, y, prepared, last=last)
            except Exception as error:
                self.failure = _failed(error)
        return self.recorded(x, y, prepared, last=last)
