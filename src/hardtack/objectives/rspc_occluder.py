"""The occluder of RSPC as a player: it maximises what the model minimises, with an optimiser of its own.

Its gradient comes from the model's backward pass, with the sign reversed. The published code does not undo the loss
scale of mixed precision: the gradient is about 65536 times too large, so that nearly every entry is clipped to ±1 and
the whole to norm 5. The result is a step of constant length, which `normalised` asks for directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.models import Occluder

_LOSS_SCALE = 2.0**16


@dataclass(frozen=True, kw_only=True)
class OccluderConfig:
    """How the occluder is updated: SGD with Nesterov momentum and a constant learning rate.

    lr             learning rate of the occluder, constant
    momentum       decay of Nesterov's momentum
    weight_decay   decay of its weights
    gradient       normalised: to norm `norm`; clipped: to at most that norm, which at true scale hardly moves the
                   occluder; scaled: multiplied by 65536, the first loss scale of mixed precision, and then clipped, as
                   published
    norm           the norm that its gradient is brought to
    seed           of its initial weights
    """

    lr: Number = 1e-4
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    gradient: Literal["normalised", "clipped", "scaled"] = "normalised"
    norm: Annotated[float, Field(gt=0)] = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.lr < 0:
            raise UserError(f"lr must not be negative, found {self.lr}")


class OccluderPlayer(nn.Module):
    """An occluder with its momentum, all in parameters and buffers, so that a continued run keeps them."""

    gradient_norm: Tensor

    def __init__(self, occluder: Occluder, config: OccluderConfig) -> None:
        super().__init__()
        self.config = config
        self.occluder = occluder
        for name, parameter in occluder.named_parameters():
            self.register_buffer(_velocity(name), torch.zeros_like(parameter))
        self.register_buffer("gradient_norm", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """1 where a patch is occluded, N×rows×columns. The backward pass reverses the sign of the gradient."""
        scale = _LOSS_SCALE if self.config.gradient == "scaled" else 1.0
        bits = self.occluder(x)
        return (1 + scale) * bits.detach() - scale * bits  # the value is exactly `bits`

    @torch.no_grad()
    def step(self) -> None:
        """Update the occluder by the gradients of its parameters.

        Entries that are not finite count as 0. The published code clips before it replaces them, so one of them makes
        the whole gradient 0: `clipped` and `scaled` do the same.
        """
        config = self.config
        named = list(self.occluder.named_parameters())
        gradients = [p.grad for _, p in named if p.grad is not None]
        if not gradients:
            return
        if config.gradient == "normalised":
            gradients = [_finite(gradient) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]))
        self.gradient_norm.copy_(_finite(norm))
        factor = config.norm / norm.clamp_min(1e-30)
        if config.gradient != "normalised":
            factor = factor.clamp_max(1.0)
        for (name, parameter), gradient in zip(named, gradients, strict=True):
            gradient = _finite(gradient * factor) + config.weight_decay * parameter
            velocity = self.get_buffer(_velocity(name))
            velocity.mul_(config.momentum).add_(gradient)
            parameter.sub_(config.lr * (gradient + config.momentum * velocity))


def _finite(values: Tensor) -> Tensor:
    return torch.nan_to_num(values, 0.0, 0.0, 0.0)


def _velocity(name: str) -> str:
    return f"velocity_{name.replace('.', '_')}"
