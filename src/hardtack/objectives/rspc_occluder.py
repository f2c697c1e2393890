"""RSPC's other player: an occluder that climbs what the model descends, and takes its own steps.

Its gradient comes from the model's backward pass, turned round on the way. The published code never un-scales it under
mixed precision: it arrives some 65536 times too large, so that nearly every entry is cut to ±1 and the whole to norm 5.
What then remains is a step of constant length. `normalised` asks for that directly.
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
    """SGD with Nesterov's momentum, at a constant rate.

    gradient  normalised: to norm `norm`; clipped: to at most that, which at true scale hardly moves the occluder;
              scaled: clipped after being multiplied by 65536, as the published code does under mixed precision
    seed      of its first weights
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


class Opponent(nn.Module):
    """An occluder with its momentum. All of it is in parameters and buffers, so that a run goes on with it."""

    gradient_norm: Tensor

    def __init__(self, occluder: Occluder, config: OccluderConfig) -> None:
        super().__init__()
        self.config = config
        self.occluder = occluder
        for name, parameter in occluder.named_parameters():
            self.register_buffer(_velocity(name), torch.zeros_like(parameter))
        self.register_buffer("gradient_norm", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """1 where a patch is occluded, N×rows×columns; a gradient that comes back goes on with its sign turned."""
        scale = _LOSS_SCALE if self.config.gradient == "scaled" else 1.0
        bits = self.occluder(x)
        return (1 + scale) * bits.detach() - scale * bits  # the bits themselves, to the last

    @torch.no_grad()
    def step(self) -> None:
        """Move the occluder by the gradients that lie in its parameters; entries that are not finite count as 0."""
        config = self.config
        named = list(self.occluder.named_parameters())
        gradients = [torch.nan_to_num(p.grad, 0.0, 0.0, 0.0) for _, p in named if p.grad is not None]
        if not gradients:
            return
        norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]))
        self.gradient_norm.copy_(norm)
        factor = config.norm / norm.clamp_min(1e-30)
        if config.gradient != "normalised":
            factor = factor.clamp_max(1.0)
        for (name, parameter), gradient in zip(named, gradients, strict=True):
            gradient = gradient * factor + config.weight_decay * parameter
            velocity = self.get_buffer(_velocity(name))
            velocity.mul_(config.momentum).add_(gradient)
            parameter.sub_(config.lr * (gradient + config.momentum * velocity))


def _velocity(name: str) -> str:
    return f"velocity_{name.replace('.', '_')}"
