"""An l1 penalty on weights: s · Σ|w| is added to the loss, by its subgradient s · sign(w) after the backward pass.

Σ runs over matrices and kernels of the parts named, not over biases and norms. The objective's own `loss` is logged
without it, the penalty beside it. Displaced weights (`sharpness`) are not penalised: the subgradient is taken at the
weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.config import listed
from hardtack.base.errors import UserError
from hardtack.models.parts import Word, chosen


@dataclass(frozen=True, kw_only=True)
class PenaltyConfig:
    """`of`: the parts that pay, by a word (all, conv, qkv, mlp, attention, …) or a pattern of names, or several."""

    l1: Annotated[float, Field(ge=0)] = 0.0
    of: Word | tuple[Word, ...] = "all"

    def remarks(self) -> Iterator[str]:
        if self.l1 == 0 and self.of != "all":
            yield "sets penalty.of without effect: penalty.l1 is 0"

    def build(self, model: nn.Module) -> Penalty | None:
        if self.l1 == 0:
            return None
        words = listed(self.of)
        found = [name for name, weight in chosen(model, words).items() if weight.ndim > 1 and weight.requires_grad]
        if not found:
            raise UserError(f"penalty.of: {', '.join(words)} holds no matrix or kernel that is trained")
        return Penalty(model, found, self.l1)


class Penalty:
    def __init__(self, model: nn.Module, names: list[str], strength: float) -> None:
        self.model, self.names = model, names
        self.strength = strength

    @torch.no_grad()
    def add(self) -> Tensor:
        """Adds the subgradient to the gradients of the weights; returns the penalty."""
        weights = [self.model.get_parameter(name) for name in self.names]
        total = torch.stack([weight.abs().sum() for weight in weights]).sum()
        for weight in weights:
            pull = self.strength * weight.sign()
            weight.grad = pull if weight.grad is None else weight.grad.add_(pull)
        return self.strength * total
