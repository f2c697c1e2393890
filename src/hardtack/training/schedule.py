"""Learning-rate schedules. A schedule is a function of the step, so it has no state to save."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hardtack.base.config import SEVERAL, Number
from hardtack.training.unused_settings import unused_settings

_COSINES = ("cosine", "timm_cosine")
_WITH_WARMUP = (*_COSINES, "step", "constant")
_USED_BY = {
    **dict.fromkeys(("warmup_epochs", "warmup_lr"), _WITH_WARMUP),
    **dict.fromkeys(("final_lr", "cooldown_epochs"), _COSINES),
    "cosine_epochs": ("cosine",),
    **dict.fromkeys(("milestones", "gamma"), ("step",)),
    **dict.fromkeys(("rise", "cycle_momentum"), ("onecycle",)),
}


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Section `schedule:` of a recipe: factor on the learning rate over the run, in epochs.

    name              how the learning rate falls: cosine, timm_cosine (timm's CosineLRScheduler), onecycle (PyTorch's),
                      step, or constant
    warmup_epochs     epochs over which the rate rises linearly at the start
    warmup_lr         learning rate that the warm-up starts from
    final_lr          learning rate that cosine and timm_cosine end at
    cooldown_epochs   epochs at the end that keep final_lr
    cosine_epochs     length of the cosine in epochs (PyTorch's T_max), where it is not the rest of the run; null: the
                      rest of the run
    rise              of onecycle: share of the run in which the rate rises
    milestones        of step: epochs at which the rate is multiplied by gamma
    gamma             of step: the factor at each milestone
    cycle_momentum    of onecycle: lowest and highest momentum, which falls while the rate rises; null: momentum stays
    per_epoch         hold the rate through an epoch at what it is at its start

    `cosine` falls to `final_lr` (absolute) after a linear warm-up from `warmup_lr`, then stays there for
    `cooldown_epochs`; `cosine_epochs` makes the fall longer or shorter than the rest of the run, so that a run may end
    before its bottom. `timm_cosine` is stepped as timm's train.py does: the rate is constant during an epoch, and the
    cosine is counted from epoch 0 over all epochs before the cool-down, so that the warm-up replaces its beginning and
    the rate is already below its peak when the warm-up ends. With `per_epoch` and `warmup_lr: 0` the first epoch moves
    nothing, as where a scheduler is stepped after each epoch.
    """

    name: Literal["cosine", "timm_cosine", "onecycle", "step", "constant"] = "cosine"
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    warmup_lr: Number = 1e-6
    final_lr: Number = 1e-6
    cooldown_epochs: Annotated[float, Field(ge=0)] = 0.0
    cosine_epochs: Annotated[float, Field(gt=0)] | None = None
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.3
    milestones: Annotated[tuple[float, ...], SEVERAL] = ()
    gamma: float = 0.1
    cycle_momentum: tuple[float, float] | None = (0.85, 0.95)
    per_epoch: bool = False

    def notes(self, *, lr: float, epochs: float) -> Iterator[str]:
        """A sentence for every setting that has no effect, or an unexpected one, at this rate and length."""
        yield from unused_settings("schedule", self, _USED_BY)
        warms_up = self.warmup_epochs > 0 and self.name in _WITH_WARMUP
        if warms_up and self.warmup_epochs >= epochs:
            yield "the whole run is warm-up: schedule.warmup_epochs is not below train.epochs"
        if warms_up and self.warmup_lr > lr:
            yield f"the rate falls during warm-up: schedule.warmup_lr {self.warmup_lr:g} is above optimiser.lr {lr:g}"
        if self.name in _COSINES and self.cooldown_epochs > 0 and self.cooldown_epochs >= epochs:
            yield "the whole run is cool-down: schedule.cooldown_epochs is not below train.epochs"
        if self.name in _COSINES and self.final_lr > lr:
            yield f"the rate rises: schedule.final_lr {self.final_lr:g} is above optimiser.lr {lr:g}"
        if self.name == "step" and not self.milestones:
            yield "the rate stays constant: schedule.name is step, and schedule.milestones is empty"
        late = ", ".join(f"{milestone:g}" for milestone in self.milestones if milestone >= epochs)
        if self.name == "step" and late:
            yield f"the run ends before a milestone: schedule.milestones has {late}, train.epochs is {epochs:g}"


@dataclass(frozen=True)
class Schedule:
    config: ScheduleConfig
    lr: float
    epochs: float
    steps_per_epoch: int

    def at(self, step: int) -> tuple[float, float | None]:
        """Learning rate, and momentum where the schedule drives it, for optimiser step `step` (from 0)."""
        config = self.config
        if config.per_epoch or config.name == "timm_cosine":
            step -= step % self.steps_per_epoch
        epoch = step / self.steps_per_epoch
        if config.name == "onecycle":
            return self._one_cycle(step)
        if epoch < config.warmup_epochs:
            return config.warmup_lr + (self.lr - config.warmup_lr) * epoch / config.warmup_epochs, None
        if config.name == "constant":
            return self.lr, None
        if config.name == "step":
            return self.lr * config.gamma ** sum(epoch >= milestone for milestone in config.milestones), None
        if config.name == "timm_cosine":
            total = max(self.epochs - config.cooldown_epochs, 1e-9)
            return _cosine(self.lr, config.final_lr, min(epoch / total, 1.0)), None
        rest = self.epochs - config.warmup_epochs - config.cooldown_epochs
        span = max(config.cosine_epochs or rest, 1e-9)
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
