"""Optimisers and learning-rate schedules. A schedule is a function of the step: nothing of it is saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.config import Number
from hardtack.errors import UserError

Decay = Annotated[float, Field(ge=0, lt=1)]
TABLES = ("pos_embed", "cls_token")  # added to the tokens, so no matrices, whatever their shape


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """`decay_all: false` spares biases, norms and what the model itself exempts from weight decay."""

    name: Literal["adamw", "sgd"] = "adamw"
    lr: Number = 5e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    momentum: Decay = 0.9
    nesterov: bool = False
    decay_all: bool = False

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise UserError(f"lr must be positive, found {self.lr}")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(model, self.weight_decay, decay_all=self.decay_all)
        fused = all(parameter.is_cuda for parameter in model.parameters())
        if self.name == "sgd":
            nesterov = self.nesterov and self.momentum > 0
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=nesterov, fused=fused)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, fused=fused)


def parameter_groups(model: nn.Module, weight_decay: float, *, decay_all: bool) -> list[dict]:
    """Two groups: matrices and kernels decay; vectors, position tables and class tokens do not."""
    exempt: set[str] = set()
    for name, module in model.named_modules():
        if hasattr(module, "no_weight_decay"):
            exempt |= {f"{name}.{item}".lstrip(".") for item in module.no_weight_decay()}
    decayed: list[Tensor] = []
    spared: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            spare = not decay_all and (parameter.ndim < 2 or name in exempt or name.rpartition(".")[2] in TABLES)
            (spared if spare else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Factor on the learning rate over the run, in epochs.

    `cosine` falls to `final_lr` (absolute) after a linear warm-up from `warmup_lr`, then stays there for
    `cooldown_epochs`; `onecycle` follows PyTorch's defaults and cycles the momentum the other way; `step`
    multiplies by `gamma` at each milestone.
    """

    name: Literal["cosine", "onecycle", "step", "constant"] = "cosine"
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    warmup_lr: Number = 1e-6
    final_lr: Number = 1e-6
    cooldown_epochs: Annotated[float, Field(ge=0)] = 0.0
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.3
    milestones: tuple[float, ...] = ()
    gamma: float = 0.1
    cycle_momentum: tuple[float, float] | None = (0.85, 0.95)


@dataclass(frozen=True)
class Schedule:
    config: ScheduleConfig
    lr: float
    epochs: float
    steps_per_epoch: int

    def at(self, step: int) -> tuple[float, float | None]:
        """Learning rate, and momentum where the schedule drives it, for optimiser step `step` (from 0)."""
        config, epoch = self.config, step / self.steps_per_epoch
        if config.name == "onecycle":
            return self._one_cycle(step)
        if epoch < config.warmup_epochs:
            return config.warmup_lr + (self.lr - config.warmup_lr) * epoch / config.warmup_epochs, None
        if config.name == "constant":
            return self.lr, None
        if config.name == "step":
            return self.lr * config.gamma ** sum(epoch >= milestone for milestone in config.milestones), None
        span = max(self.epochs - config.warmup_epochs - config.cooldown_epochs, 1e-9)
        return _cosine(self.lr, config.final_lr, min((epoch - config.warmup_epochs) / span, 1.0)), None

    def _one_cycle(self, step: int) -> tuple[float, float | None]:
        total = round(self.epochs * self.steps_per_epoch)
        peak, last = self.config.rise * total - 1, total - 1
        low, final = self.lr / 25, self.lr / 25 / 1e4
        base, top = self.config.cycle_momentum or (0.0, 0.0)
        if step <= peak:
            lr, momentum = _cosine(low, self.lr, step / max(peak, 1)), _cosine(top, base, step / max(peak, 1))
        else:
            share = min((step - peak) / max(last - peak, 1), 1.0)
            lr, momentum = _cosine(self.lr, final, share), _cosine(base, top, share)
        return lr, momentum if self.config.cycle_momentum else None


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def set_rates(optimiser: torch.optim.Optimizer, lr: float, momentum: float | None) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr
        if momentum is not None:
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum


class Average:
    """Exponential moving average of a model's weights, kept as a second model; buffers are copied as they are.

    The decay grows as (1 + t)/(10 + t) until it reaches its value, so that early averages forget the start.
    """

    def __init__(self, average: nn.Module, decay: float) -> None:
        self.model = average.eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, source: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        mine: list[Tensor] = list(self.model.parameters())
        theirs = [p.detach() for p in source.parameters()]
        torch._foreach_lerp_(mine, theirs, 1 - decay)
        for buffer, new in zip(self.model.buffers(), source.buffers(), strict=True):
            buffer.copy_(new)
