"""Activations without a useful gradient: k-winners-take-all, spiking, binarised and rounded ones.

The networks are fitted with the activation in place (fitted.py). Insiders differentiate them as if the activation were
smooth.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.fitted import FittedNet, smooth_insider
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


def _with_activation(core: Core, draw: Draw, activation: nn.Module, smooth: nn.Module) -> Defence:
    net = FittedNet(core, draw, activation=activation)
    return Defence(model=net, insiders=(smooth_insider(net, activation=smooth), net))


class KWinners(nn.Module):
    """Only the largest activations of the whole layer are kept (Xiao et al. 2020)."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        threshold = rows.topk(max(1, round(self.share * rows.shape[1])), dim=1).values[:, -1:]
        return (rows * (rows >= threshold)).reshape(x.shape)


@mechanisms.register("k_winners", help="k-winners-take-all with a drawn share of winners (Xiao et al. 2020)")
def k_winners(core: Core, draw: Draw) -> Defence:
    return _with_activation(core, draw, KWinners(draw.uniform("share", 0.05, 0.25)), nn.ReLU())


class Spiking(nn.Module):
    """Integrate-and-fire neurons: the number of spikes in a few time steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        voltage, spikes = torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(self.steps):
            voltage = voltage + x
            fired = (voltage >= 1).to(x.dtype)
            voltage = (voltage - fired).clamp_min(0)
            spikes = spikes + fired
        return spikes / self.steps + 0 * x


@mechanisms.register("spiking", help="integrate-and-fire neurons over a drawn number of time steps: no gradient")
def spiking(core: Core, draw: Draw) -> Defence:
    return _with_activation(core, draw, Spiking(draw.integer("steps", 3, 10)), nn.Hardtanh(0, 1))


class Binarised(nn.Module):
    """The sign of the activation."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sign(x)


@mechanisms.register("binarised", help="activations are −1 or 1: no gradient")
def binarised(core: Core, draw: Draw) -> Defence:
    return _with_activation(core, draw, Binarised(), nn.Hardtanh())


class RoundedActivations(nn.Module):
    """ReLU, rounded to multiples of `unit`."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x.relu() / self.unit) * self.unit


@mechanisms.register("rounded_activations", help="activations rounded to a drawn unit: no gradient")
def rounded_activations(core: Core, draw: Draw) -> Defence:
    return _with_activation(core, draw, RoundedActivations(draw.uniform("unit", 0.1, 0.5)), nn.ReLU())


class Sine(nn.Module):
    """A fast sine of the activation: smooth, with many local maxima."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() + torch.sin(self.frequency * x) / self.frequency**0.5


@mechanisms.register("sine_activations", help="ReLU plus a fast sine of drawn frequency: many local maxima")
def sine_activations(core: Core, draw: Draw) -> Defence:
    return _with_activation(core, draw, Sine(draw.log_uniform("frequency", 50, 1000)), nn.ReLU())
