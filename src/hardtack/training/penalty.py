"""An l1 penalty on weights: s · Σ|w| is added to the loss, by its subgradient s · sign(w) after the backward pass.

The sum is over the matrices and kernels of the named parts, without biases and norms. The log has the objective's own
`loss` without the penalty, and the penalty beside it. With sharpness-aware training the subgradient is taken at the
weights themselves, not at the displaced ones.
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
    """Section `penalty:` of a recipe: a penalty on weights, which makes them sparse.

    l1   weight of the sum of absolute weights in the loss
    of   the parts that are penalised: a word (all, conv, qkv, mlp, attention, …), a pattern of names, or a list
    """

    l1: Annotated[float, Field(ge=0)] = 0.0
    of: Word | tuple[Word, ...] = "all"

    def notes(self) -> Iterator[str]:
        if self.l1 == 0 and self.of != "all":
            yield "penalty.of has no effect: penalty.l1 is 0"

    def build(self, model: nn.Module) -> Penalty | None:
        if self.l1 == 0:
            return None
        words = listed(self.of)
        names = [name for name, weight in chosen(model, words).items() if weight.ndim > 1 and weight.requires_grad]
        if not names:
            raise UserError(f"penalty.of: {', '.join(words)} has no matrix or kernel that is trained")
        return Penalty(model, names, self.l1)


class Penalty:
    def __init__(self, model: nn.Module, names: list[str], strength: float) -> None:
        self.model, self.names = model, names
        self.strength = strength

    @torch.no_grad()
    def add(self) -> Tensor:
        """Add the subgradient to the gradients of the weights; returns the penalty."""
        weights = [self.model.get_parameter(name) for name in self.names]
        total = torch.stack([weight.abs().sum() for weight in weights]).sum()
        for weight in weights:
            pull = self.strength * weight.sign()
            weight.grad = pull if weight.grad is None else weight.grad.add_(pull)
        return self.strength * total
