"""Vanishing and exploding gradients: temperature, saturation, deep recurrence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.gradients import StraightThrough
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


class Scaled(nn.Module):
    """Logits times a constant: a temperature."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor) -> Tensor:
        return self.factor * logits


@mechanisms.register("temperature_high", help="logits times 1000: cross-entropy saturates, as with distillation")
def temperature_high(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Scaled(1e3)))


@mechanisms.register("temperature_low", help="logits divided by 1000: the loss is almost flat")
def temperature_low(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Scaled(1e-3)))


@mechanisms.register("temperature_drawn", help="logits times a drawn power of ten from 1e-6 to 1e6")
def temperature_drawn(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Scaled(draw.log_uniform("factor", 1e-6, 1e6))))


class Saturated(nn.Module):
    """Pixels through a steep sigmoid around one half: most have almost no gradient."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.steepness = steepness

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.steepness * (x - 0.5))


@mechanisms.register("saturated_pixels", help="pixels through a steep sigmoid of drawn slope")
def saturated_pixels(core: Core, draw: Draw) -> Defence:
    sigmoid = Saturated(draw.uniform("steepness", 15, 60))
    model = nn.Sequential(sigmoid, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(sigmoid), core.model), model))


class TanhHead(nn.Module):
    """Logits through a steep tanh: their gradient is tiny but not zero."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.steepness = steepness

    def forward(self, logits: Tensor) -> Tensor:
        return torch.tanh(self.steepness * logits)


@mechanisms.register("saturated_logits", help="logits through a steep tanh of drawn slope")
def saturated_logits(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, TanhHead(draw.uniform("steepness", 0.5, 5))))


class Recurrence(nn.Module):
    """Repeats x ← x − rate/(2πk)·sin(2πk·x), which drives every pixel towards the nearest of k levels.

    With rate < 1 it converges, and the gradient vanishes as (1 − rate)^steps; above 2 it is chaotic and the gradient
    explodes.
    """

    def __init__(self, levels: int, rate: float, steps: int) -> None:
        super().__init__()
        self.levels, self.rate, self.steps = levels, rate, steps

    def forward(self, x: Tensor) -> Tensor:
        angle = 2 * math.pi * self.levels
        for _ in range(self.steps):
            x = x - self.rate / angle * torch.sin(angle * x)
        return x


def _recurrent(core: Core, loop: Recurrence) -> Defence:
    model = nn.Sequential(loop, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(loop), core.model), model))


@mechanisms.register("recurrence_vanishing", help="pixels drawn to a few levels by many iterations: gradient vanishes")
def recurrence_vanishing(core: Core, draw: Draw) -> Defence:
    levels, rate = draw.integer("levels", 6, 16), draw.uniform("rate", 0.3, 0.7)
    return _recurrent(core, Recurrence(levels, rate, draw.integer("steps", 20, 60)))


@mechanisms.register("recurrence_exploding", help="pixels through many chaotic iterations: the gradient explodes")
def recurrence_exploding(core: Core, draw: Draw) -> Defence:
    levels, rate = draw.integer("levels", 20, 60), draw.uniform("rate", 2.6, 3.4)
    return _recurrent(core, Recurrence(levels, rate, draw.integer("steps", 15, 60)))
