"""Gradient games: the values are the core's own, and the backward pass lies."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.gradients import ChangedGradient, Detached, Surrogate, WeightedGradient
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


def _game(core: Core, first: nn.Module) -> Defence:
    return Defence(model=nn.Sequential(first, core.model), same_values=True)


@mechanisms.register("detached", help="the input is detached: the gradient is zero")
def detached(core: Core, draw: Draw) -> Defence:
    return _game(core, Detached(nn.Identity()))


@mechanisms.register("detached_part", help="the input is detached but for a drawn band of rows")
def detached_part(core: Core, draw: Draw) -> Defence:
    height = core.shape[1]
    rows = draw.integer("rows", 1, max(2, height // 8))
    first = draw.integer("first", 0, height - rows)
    weight = torch.zeros(core.shape)
    weight[:, first : first + rows] = 1
    return _game(core, WeightedGradient(weight))


@mechanisms.register("masked_pixels", help="the gradient reaches 5 % of the pixels only")
def masked_pixels(core: Core, draw: Draw) -> Defence:
    return _game(core, WeightedGradient(draw.mask(0.05, *core.shape)))


@mechanisms.register("masked_pixels_drawn", help="the gradient reaches a drawn share of the pixels only")
def masked_pixels_drawn(core: Core, draw: Draw) -> Defence:
    return _game(core, WeightedGradient(draw.mask(draw.uniform("share", 0.02, 0.3), *core.shape)))


@mechanisms.register("reversed", help="the gradient has the opposite sign")
def reversed_gradient(core: Core, draw: Draw) -> Defence:
    return _game(core, WeightedGradient(torch.tensor(-1.0)))


@mechanisms.register("scrambled", help="the gradient has random fixed signs")
def scrambled(core: Core, draw: Draw) -> Defence:
    return _game(core, WeightedGradient(draw.signs(*core.shape)))


@mechanisms.register("scrambled_part", help="a drawn share of the gradient's signs is reversed")
def scrambled_part(core: Core, draw: Draw) -> Defence:
    share = draw.uniform("share", 0.35, 0.6)
    return _game(core, WeightedGradient(1 - 2 * draw.mask(share, *core.shape)))


class ShuffledGradient(ChangedGradient):
    """The gradient of each pixel is handed to another pixel."""

    order: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)

    def change(self, gradient: Tensor) -> Tensor:
        return gradient.flatten(1)[:, self.order].reshape(gradient.shape)


@mechanisms.register("shuffled", help="the gradient's pixels are permuted")
def shuffled(core: Core, draw: Draw) -> Defence:
    pixels = core.x[0].numel()
    return _game(core, ShuffledGradient(torch.randperm(pixels, generator=draw.generator)))


class NoisyGradient(ChangedGradient):
    """Noise of `scale` times the gradient's own size is added to it, anew in every pass."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def change(self, gradient: Tensor) -> Tensor:
        size = gradient.flatten(1).std(dim=1).reshape(-1, 1, 1, 1)
        return gradient + self.scale * size * torch.randn_like(gradient)


@mechanisms.register("noisy_gradient", help="noise many times larger than the gradient is added to it in every pass")
def noisy_gradient(core: Core, draw: Draw) -> Defence:
    return _game(core, NoisyGradient(draw.log_uniform("scale", 10, 100)))


@mechanisms.register("underflow", help="the gradient is multiplied by 1e-40: zero or a denormal number in fp32")
def underflow(core: Core, draw: Draw) -> Defence:
    tiny = WeightedGradient(torch.tensor(1e-20))
    return _game(core, nn.Sequential(tiny, WeightedGradient(torch.tensor(1e-20))))


class BrokenGradient(ChangedGradient):
    """NaN in a share of the gradient's pixels."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def change(self, gradient: Tensor) -> Tensor:
        return gradient.masked_fill(self.mask.bool(), torch.nan)


@mechanisms.register("nan_gradient", help="a drawn share of the gradient's pixels is NaN")
def nan_gradient(core: Core, draw: Draw) -> Defence:
    return _game(core, BrokenGradient(draw.mask(draw.uniform("share", 0.01, 0.5), *core.shape)))


class LinearDecoy(nn.Module):
    """Logits that are a fixed random linear function of the pixels: smooth, and unrelated to the model."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.to(x.dtype)


def decoy(core: Core, draw: Draw) -> LinearDecoy:
    """A decoy of its own for every seed."""
    pixels = core.x[0].numel()
    return LinearDecoy(draw.normal(pixels, core.classes) / pixels**0.5)


@mechanisms.register("custom_backward", help="the backward pass is that of another, random linear model")
def custom_backward(core: Core, draw: Draw) -> Defence:
    return Defence(model=Surrogate(core.model, decoy(core, draw)), same_values=True)
