"""Building blocks of defences: modules whose backward pass is not the derivative of their forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class StraightThrough(nn.Module):
    """`transform` in the forward pass, the identity in the backward pass (BPDA, Athalye et al. 2018)."""

    def __init__(self, transform: nn.Module) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.transform(x.detach()) - x).detach()


class Detached(nn.Module):
    """`transform` without a gradient of its own; a zero gradient reaches the input."""

    def __init__(self, transform: nn.Module) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, x: Tensor) -> Tensor:
        return self.transform(x.detach()) + 0 * x


class Surrogate(nn.Module):
    """The values of `forward_model`, the gradient of `backward_model`: BPDA for whole models, or a lie about one."""

    def __init__(self, forward_model: nn.Module, backward_model: nn.Module) -> None:
        super().__init__()
        self.forward_model, self.backward_model = forward_model, backward_model

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self.forward_model(x)
        slope = self.backward_model(x)
        return slope + (self.forward_model(x.detach()) - slope).detach()


class _ChangedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.change(gradients[0]), None


class ChangedGradient(nn.Module):
    """The identity, whose backward pass replaces the gradient g by `change(g)`; subclasses say how."""

    def change(self, gradient: Tensor) -> Tensor:
        return gradient

    def forward(self, x: Tensor) -> Tensor:
        return _ChangedBackward.apply(x, self.change)


class WeightedGradient(ChangedGradient):
    """The identity; the gradient of each pixel is multiplied by its entry of `weight`."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def change(self, gradient: Tensor) -> Tensor:
        return gradient * self.weight.to(gradient.dtype)
