"""Averages of a model's weights, kept as a second model, which is then validated and exported."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class MovingAverage:
    """Exponential moving average over steps; buffers are copied as they are.

    The decay grows as (1 + t)/(10 + t) until it reaches its value, so that early averages forget the initial weights.
    """

    kind = "ema"
    begun = True
    copies_statistics = True

    def __init__(self, average: nn.Module, decay: float) -> None:
        self.model = average.eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def after_step(self, source: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        _approach(self.model, source, 1 - decay)
        for buffer, new in zip(self.model.buffers(), source.buffers(), strict=True):
            buffer.copy_(new)

    def after_epoch(self, source: nn.Module, epoch: int) -> None:
        """Nothing to do: every step is averaged."""

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict()}

    def load(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])


class EpochMean:
    """Stochastic weight averaging (Izmailov et al. 2018): the equal mean of the weights at the ends of epochs.

    Its batch-norm statistics belong to none of the epochs and must be computed again (`new_statistics`).
    """

    kind = "swa"
    copies_statistics = False

    def __init__(self, average: nn.Module, first_epoch: int) -> None:
        self.model = average.eval().requires_grad_(False)
        self.first_epoch = first_epoch
        self.count = 0

    @property
    def begun(self) -> bool:
        return self.count > 0

    def after_step(self, source: nn.Module, step: int) -> None:
        """Nothing to do: only the ends of epochs are averaged."""

    @torch.no_grad()
    def after_epoch(self, source: nn.Module, epoch: int) -> None:
        """`epoch` is the number of epochs that have ended."""
        if epoch < self.first_epoch:
            return
        self.count += 1
        _approach(self.model, source, 1 / self.count)

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "count": self.count}

    def load(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.count = state["count"]


Average = MovingAverage | EpochMean


def make_average(model: nn.Module, *, ema: float | None, swa_from: int | None) -> Average | None:
    if ema is not None:
        return MovingAverage(copy.deepcopy(model), ema)
    return EpochMean(copy.deepcopy(model), swa_from) if swa_from is not None else None


def _approach(average: nn.Module, source: nn.Module, share: float) -> None:
    mine: list[Tensor] = list(average.parameters())
    torch._foreach_lerp_(mine, [parameter.detach() for parameter in source.parameters()], share)


# ---------------------------------------------------------------- batch-norm statistics of averaged weights


def has_statistics(model: nn.Module) -> bool:
    return any(isinstance(module, _BATCH_NORM) and module.track_running_stats for module in model.modules())


@contextlib.contextmanager
def new_statistics(model: nn.Module, average: nn.Module) -> Iterator[None]:
    """Inside the block `model` has the average's weights, and its batch norms average the statistics of what they see.

    The caller passes batches through the model. Afterwards the average has those statistics and `model` its own state.
    Batch norms in eval mode (of frozen parts) keep their statistics.
    """
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    norms = [module for module in model.modules() if isinstance(module, _BATCH_NORM) and module.training]
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad():
        for mine, averaged in zip(model.parameters(), average.parameters(), strict=True):
            mine.copy_(averaged)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over batches
    try:
        yield
        _average_over_processes(norms)
        for buffer, new in zip(average.buffers(), model.buffers(), strict=True):
            buffer.copy_(new)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.load_state_dict(kept)


def _average_over_processes(norms: list) -> None:
    """Each process has the statistics of its own images; all continue with their mean."""
    if torch.distributed.is_initialized():
        for norm in norms:
            for statistic in (norm.running_mean, norm.running_var):
                torch.distributed.all_reduce(statistic)
                statistic /= torch.distributed.get_world_size()
