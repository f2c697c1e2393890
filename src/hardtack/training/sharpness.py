"""Minimising the largest loss in a neighbourhood of the weights: SAM and AWP.

Both take the gradient twice. The first one displaces the weights to where the loss is higher; the second is taken
there, on the same images, and applied to the original weights.

    SAM (Foret et al. 2021)             e = rho · g / ‖g‖                        over all weights together
    adaptive SAM (Kwon et al. 2021)     e = rho · w² g / ‖|w| g‖                 the same, in units of each weight
    AWP (Wu et al. 2020)                e = rho · ‖w_l‖ · g_l / ‖g_l‖            for each matrix or kernel w_l by itself
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.errors import UserError

_RHO = {"none": 0.0, "sam": 0.05, "awp": 0.005}
_TINY = 1e-12
MicroBatch = tuple[Tensor, Tensor, dict[str, Any]]  # x, y and what the objective has prepared


@dataclass(frozen=True, kw_only=True)
class SharpnessConfig:
    """Section `sharpness:` of a recipe. Before `from_epoch` the gradient is taken once, as with `none`.

    name         sam: sharpness-aware minimisation; awp: adversarial weight perturbation; none: neither
    rho          length of the displacement of the weights; null: 0.05 for sam, and 0.005 relative to each layer for awp
    adaptive     of sam: scale the displacement by the size of each weight (ASAM)
    from_epoch   epoch from which weights are displaced
    """

    name: Literal["none", "sam", "awp"] = "none"
    rho: Annotated[float, Field(ge=0)] | None = None
    adaptive: bool = False
    from_epoch: Annotated[float, Field(ge=0)] = 0.0

    def __post_init__(self) -> None:
        if self.adaptive and self.name != "sam":
            raise UserError(f"adaptive is a setting of sam, and sharpness.name is {self.name}; leave it out")
        if self.name == "none" and (self.rho is not None or self.from_epoch > 0):
            raise UserError("rho and from_epoch are settings of sam and awp: set sharpness.name=sam, or leave them out")

    def notes(self, *, epochs: float) -> Iterator[str]:
        if self.name != "none" and self.from_epoch >= epochs:
            yield f"{self.name} has no effect: sharpness.from_epoch {self.from_epoch:g} is not below train.epochs"

    def is_active(self, epoch: float) -> bool:
        return self.name != "none" and epoch >= self.from_epoch

    @torch.no_grad()
    def displacement(self, weights: list[Tensor], gradients: list[Tensor]) -> Sequence[Tensor]:
        """What is added to each of the weights; computed for all at once, because there are hundreds of small ones."""
        rho = _RHO[self.name] if self.rho is None else self.rho
        if self.name == "awp":
            return _along_layers(weights, gradients, rho)
        if not self.adaptive:
            return torch._foreach_mul(gradients, rho / (_length(gradients) + _TINY))
        sizes = torch._foreach_abs(weights)
        scaled = torch._foreach_mul(sizes, gradients)
        return torch._foreach_mul(torch._foreach_mul(sizes, scaled), rho / (_length(scaled) + _TINY))

    @contextlib.contextmanager
    def displaced(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Inside the block the weights are displaced along their gradients; afterwards they are restored to the bit.

        Gradients are read on entry only: the next backward pass may overwrite their memory.
        """
        weights: list[Tensor] = [parameter for parameter in parameters if parameter.grad is not None]
        before = [weight.detach().clone() for weight in weights]
        moves = self.displacement(before, [weight.grad for weight in weights if weight.grad is not None])
        with torch.no_grad():
            torch._foreach_add_(weights, list(moves))
        del moves
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, value in zip(weights, before, strict=True):
                    weight.copy_(value)


def _along_layers(weights: list[Tensor], gradients: list[Tensor], rho: float) -> list[Tensor]:
    lengths = zip(torch._foreach_norm(weights), torch._foreach_norm(gradients), strict=True)
    return [
        rho * length / (steepness + _TINY) * g if g.ndim > 1 else torch.zeros_like(g)
        for g, (length, steepness) in zip(gradients, lengths, strict=True)
    ]


def _length(tensors: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(tensors)


def copy_prepared(micro_batch: MicroBatch) -> MicroBatch:
    """The micro-batch with copies of what was prepared: the next replay of a CUDA graph overwrites the original."""
    x, y, prepared = micro_batch
    return x, y, {name: value.clone() if isinstance(value, Tensor) else value for name, value in prepared.items()}


@contextlib.contextmanager
def buffers_restored(module: nn.Module) -> Iterator[None]:
    """Undoes what the block writes to buffers, so that a batch counts once in the statistics of batch norm."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in kept:
                buffer.copy_(old)
