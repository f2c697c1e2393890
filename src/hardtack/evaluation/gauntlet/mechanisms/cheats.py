"""Adaptive cheats: the model behaves differently when it is being evaluated.

The truth of a cheat is that of the model as deployed: gradients off, fp32, images one by one, first call. Of a model
that answers by the number of its calls or by the clock no number is right: it is no function. Its truth is the core's,
and an evaluator passes by finding as low a number or by raising a red flag.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw
from hardtack.evaluation.gauntlet.mechanisms.games import decoy


class Memorised(nn.Module):
    """The core's logits at the memorised test image that is nearest: robust answers, for those who ask as attackers.

    A tiny random slope gives them a gradient, so that they do not look masked.
    """

    images: Tensor

    def __init__(self, core: Core, draw: Draw) -> None:
        super().__init__()
        self.core, self.slope = core.model, decoy(core, draw)
        self.register_buffer("images", core.x.clone())

    def nearest(self, x: Tensor) -> Tensor:
        """The memorised images that are nearest to x."""
        distance = torch.cdist(x.detach().float().flatten(1), self.images.float().flatten(1))
        return self.images[distance.argmin(dim=1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.core(self.nearest(x).to(x.dtype)) + 1e-3 * self.slope(x)


class Cheat(nn.Module):
    """`honest` for those who use the model, `other` for those who seem to evaluate it; subclasses say who does."""

    def __init__(self, honest: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.honest, self.other = honest, other

    def is_evaluated(self, x: Tensor) -> bool:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.other(x) if self.is_evaluated(x) else self.honest(x)


def _cheats(core: Core, model: nn.Module) -> Defence:
    return Defence(model=model, deployed=core.model, same_values=True)


class WhenGradientsAreEnabled(Cheat):
    def is_evaluated(self, x: Tensor) -> bool:
        return torch.is_grad_enabled()


@mechanisms.register("cheat_grad_enabled", help="other answers when gradients are enabled")
def grad_enabled(core: Core, draw: Draw) -> Defence:
    return _cheats(core, WhenGradientsAreEnabled(core.model, decoy(core, draw)))


class WhenInputNeedsGradient(Cheat):
    def is_evaluated(self, x: Tensor) -> bool:
        return x.requires_grad


@mechanisms.register("cheat_requires_grad", help="answers of the nearest test image when the input needs a gradient")
def requires_grad(core: Core, draw: Draw) -> Defence:
    return _cheats(core, WhenInputNeedsGradient(core.model, Memorised(core, draw)))


class AfterCalls(Cheat):
    """Counts its calls in a Python attribute, which no attack restores."""

    def __init__(self, honest: nn.Module, other: nn.Module, calls: int) -> None:
        super().__init__(honest, other)
        self.allowed, self.calls = calls, 0

    def is_evaluated(self, x: Tensor) -> bool:
        self.calls += 1
        return self.calls > self.allowed


@mechanisms.register("cheat_calls", help="the answers of the nearest test image after 8 calls")
def calls(core: Core, draw: Draw) -> Defence:
    return _cheats(core, AfterCalls(core.model, Memorised(core, draw), 8))


@mechanisms.register("cheat_calls_drawn", help="the answers of the nearest test image after a drawn number of calls")
def calls_drawn(core: Core, draw: Draw) -> Defence:
    return _cheats(core, AfterCalls(core.model, Memorised(core, draw), draw.integer("calls", 3, 60)))


class InLargeBatches(Cheat):
    def __init__(self, honest: nn.Module, other: nn.Module, largest: int) -> None:
        super().__init__(honest, other)
        self.largest = largest

    def is_evaluated(self, x: Tensor) -> bool:
        return len(x) > self.largest


@mechanisms.register("cheat_batch_size", help="the answers of the nearest test image in batches above 8")
def batch_size(core: Core, draw: Draw) -> Defence:
    return _cheats(core, InLargeBatches(core.model, Memorised(core, draw), 8))


@mechanisms.register("cheat_batch_size_drawn", help="answers of the nearest test image in batches above a drawn size")
def batch_size_drawn(core: Core, draw: Draw) -> Defence:
    return _cheats(core, InLargeBatches(core.model, Memorised(core, draw), draw.integer("largest", 4, 24)))


class InCompany(nn.Module):
    """Images of which the batch holds a second version (closer than `distance`) get the answers of the nearest image.

    An attack that runs several attempts on an image at once shows it such batches.
    """

    def __init__(self, honest: nn.Module, other: Memorised, distance: float) -> None:
        super().__init__()
        self.honest, self.other, self.distance = honest, other, distance

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().float().flatten(1)
        close = (torch.cdist(rows, rows, p=torch.inf) < self.distance).sum(dim=1) > 1
        return torch.where(close[:, None], self.other(x), self.honest(x))


@mechanisms.register("cheat_company", help="other answers if the batch holds a second version of the same image")
def company(core: Core, draw: Draw) -> Defence:
    distance = 2 * core.threat.radius if core.threat.norm == "linf" else 0.1
    return _cheats(core, InCompany(core.model, Memorised(core, draw), distance))


class InLowPrecision(Cheat):
    def is_evaluated(self, x: Tensor) -> bool:
        return x.dtype != torch.float32 or torch.is_autocast_enabled(x.device.type) or self._weights() != torch.float32

    def _weights(self) -> torch.dtype:
        return next(self.honest.parameters()).dtype


@mechanisms.register("cheat_dtype", help="other answers in bf16, fp16 or fp64, by input, weights or autocast")
def dtype(core: Core, draw: Draw) -> Defence:
    return _cheats(core, InLowPrecision(core.model, decoy(core, draw)))


class OfAnotherTime(Cheat):
    """Honest for a short time after the first call."""

    def __init__(self, honest: nn.Module, other: nn.Module, seconds: float) -> None:
        super().__init__(honest, other)
        self.seconds, self.first = seconds, 0.0

    def is_evaluated(self, x: Tensor) -> bool:
        self.first = self.first or time.monotonic()
        return time.monotonic() - self.first > self.seconds


@mechanisms.register("cheat_clock", help="the answers of the nearest test image a drawn time after the first call")
def clock(core: Core, draw: Draw) -> Defence:
    return _cheats(core, OfAnotherTime(core.model, Memorised(core, draw), draw.uniform("seconds", 0.02, 0.3)))


class ExactPixels(nn.Module):
    """At the memorised test images the gradient is zero; everywhere else the model is honest."""

    def __init__(self, core: Core, draw: Draw) -> None:
        super().__init__()
        self.core, self.memory = core.model, Memorised(core, draw)

    def forward(self, x: Tensor) -> Tensor:
        known = (self.memory.nearest(x).to(x.dtype) == x.detach()).flatten(1).all(dim=1)
        return self.core(torch.where(known[:, None, None, None], x.detach(), x))


@mechanisms.register("cheat_exact_pixels", help="no gradient at the exact pixels of the test images")
def exact_pixels(core: Core, draw: Draw) -> Defence:
    return Defence(model=ExactPixels(core, draw), same_values=True)


class OnTheBoundary(nn.Module):
    """Images most of whose changed pixels lie at the same largest distance from a test image get its answers."""

    def __init__(self, core: Core, draw: Draw, share: float) -> None:
        super().__init__()
        self.core, self.memory, self.share = core.model, Memorised(core, draw), share
        self.radius, self.norm = core.threat.radius, core.threat.norm

    def forward(self, x: Tensor) -> Tensor:
        change = (x.detach().float() - self.memory.nearest(x).float()).flatten(1)
        if self.norm == "linf":
            on_edge = ((change.abs() - self.radius).abs() < 1e-4 * self.radius).float().mean(dim=1) > self.share
        else:
            size = change.norm(dim=1) if self.norm == "l2" else change.abs().sum(dim=1)
            on_edge = (size - self.radius).abs() < 1e-3 * self.radius
        return torch.where(on_edge[:, None], self.memory(x), self.core(x))


@mechanisms.register("cheat_boundary", help="the answers of the test image for points on the boundary of its ball")
def boundary(core: Core, draw: Draw) -> Defence:
    return Defence(model=OnTheBoundary(core, draw, draw.uniform("share", 0.1, 0.3)))


class Copied(nn.Module):
    """A deep copy of this model answers differently from the model."""

    def __init__(self, honest: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.honest, self.other, self.is_copy = honest, other, False

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        copied = Copied(self.honest, self.other)
        copied.is_copy = True
        return copied.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.other(x) if self.is_copy else self.honest(x)


@mechanisms.register("cheat_copied", help="a deep copy of the model answers differently")
def copied(core: Core, draw: Draw) -> Defence:
    return _cheats(core, Copied(core.model, decoy(core, draw)))
