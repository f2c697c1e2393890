"""Shattered gradients: the gradient exists and is correct, but it tells nothing about points a step away."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.gradients import StraightThrough
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


class Ripple(nn.Module):
    """x + amplitude·sin(frequency·x)."""

    def __init__(self, amplitude: float, frequency: float) -> None:
        super().__init__()
        self.amplitude, self.frequency = amplitude, frequency

    def forward(self, x: Tensor) -> Tensor:
        return x + self.amplitude * torch.sin(self.frequency * x)


def _rippled(model: nn.Module, wave: nn.Module) -> Defence:
    return Defence(model=nn.Sequential(wave, model), insiders=(nn.Sequential(StraightThrough(wave), model), model))


@mechanisms.register("ripple", help="x + 0.01·sin(400x): the sign of each pixel's gradient alternates")
def ripple(core: Core, draw: Draw) -> Defence:
    return _rippled(core.model, Ripple(0.01, 400.0))


@mechanisms.register("ripple_fine", help="x + 0.001·sin(100,000x): hardly changes the image, only its gradient")
def ripple_fine(core: Core, draw: Draw) -> Defence:
    return _rippled(core.model, Ripple(0.001, 1e5))


@mechanisms.register("ripple_drawn", help="a ripple of drawn amplitude and frequency")
def ripple_drawn(core: Core, draw: Draw) -> Defence:
    slope = draw.uniform("slope", 1.5, 8.0)  # above 1 the sign of the gradient alternates
    frequency = draw.log_uniform("frequency", 150, 5000)
    return _rippled(core.model, Ripple(slope / frequency, frequency))


@mechanisms.register("ripple_sum", help="three ripples of drawn frequencies, each with its own direction in RGB")
def ripple_sum(core: Core, draw: Draw) -> Defence:
    waves = []
    for number in range(3):
        frequency = draw.log_uniform(f"frequency_{number}", 200, 20_000)
        waves.append(Ripple(draw.uniform(f"slope_{number}", 0.8, 3.0) / frequency, frequency))
    return _rippled(core.model, nn.Sequential(*waves))


@mechanisms.register("ripple_robust", help="a ripple of drawn frequency around the adversarially trained core")
def ripple_robust(core: Core, draw: Draw) -> Defence:
    frequency = draw.log_uniform("frequency", 200, 2000)
    return _rippled(core.robust_model(), Ripple(4 / frequency, frequency))


class LogitRipple(nn.Module):
    """Logits with a ripple that has `slope` times their own slope; values change by less than slope/frequency."""

    def __init__(self, slope: float, frequency: float) -> None:
        super().__init__()
        self.slope, self.frequency = slope, frequency

    def forward(self, logits: Tensor) -> Tensor:
        return logits + self.slope / self.frequency * torch.sin(self.frequency * logits)


@mechanisms.register("ripple_logits", help="logits with a ripple of drawn frequency: the loss has many local maxima")
def ripple_logits(core: Core, draw: Draw) -> Defence:
    wave = LogitRipple(draw.uniform("slope", 2.0, 6.0), draw.log_uniform("frequency", 20, 500))
    return Defence(model=nn.Sequential(core.model, wave))


class Staircase(nn.Module):
    """The pixel's step of `levels` steps; its gradient is zero everywhere."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(x.clamp(0, 1 - 1e-6) * self.levels) / (self.levels - 1)


@mechanisms.register("staircase", help="pixels on a staircase with a drawn number of steps; the gradient is zero")
def staircase(core: Core, draw: Draw) -> Defence:
    steps = Staircase(draw.integer("levels", 4, 24))
    model = nn.Sequential(steps, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(steps), core.model),))


class SlopedStaircase(nn.Module):
    """A staircase whose steps are slightly sloped, up or down at random for each pixel: a gradient that misleads."""

    slopes: Tensor

    def __init__(self, levels: int, slopes: Tensor) -> None:
        super().__init__()
        self.steps = Staircase(levels)
        self.register_buffer("slopes", slopes)

    def forward(self, x: Tensor) -> Tensor:
        return self.steps(x).detach() + self.slopes.to(x.dtype) * x


@mechanisms.register("staircase_sloped", help="eight input levels with a random slope of 0.001 each")
def staircase_sloped(core: Core, draw: Draw) -> Defence:
    steps = SlopedStaircase(8, 1e-3 * draw.signs(*core.shape))
    model = nn.Sequential(steps, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(steps), core.model),))


class SmoothStaircase(nn.Module):
    """A differentiable staircase: flat on the steps, very steep between them."""

    def __init__(self, levels: int, sharpness: float) -> None:
        super().__init__()
        self.levels, self.sharpness = levels, sharpness

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.levels
        inner = scaled - torch.floor(scaled).detach() - 0.5
        edge = math.tanh(self.sharpness / 2)
        return (scaled - inner + 0.5 * torch.tanh(self.sharpness * inner) / edge - 0.0) / self.levels


@mechanisms.register("staircase_smooth", help="a differentiable staircase of drawn sharpness")
def staircase_smooth(core: Core, draw: Draw) -> Defence:
    steps = SmoothStaircase(draw.integer("levels", 6, 16), draw.uniform("sharpness", 8, 30))
    model = nn.Sequential(steps, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(steps), core.model), model))


class Sawtooth(nn.Module):
    """x plus a sawtooth that falls steeply within each period: the gradient has the wrong sign almost everywhere."""

    def __init__(self, amplitude: float, periods: int) -> None:
        super().__init__()
        self.amplitude, self.periods = amplitude, periods

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.periods
        return x - self.amplitude * (scaled - torch.floor(scaled).detach() - 0.5)


@mechanisms.register("sawtooth", help="x minus a steep sawtooth: almost everywhere the gradient points backwards")
def sawtooth(core: Core, draw: Draw) -> Defence:
    periods = draw.integer("periods", 100, 1000)
    return _rippled(core.model, Sawtooth(draw.uniform("slope", 1.2, 3.0) / periods, periods))
