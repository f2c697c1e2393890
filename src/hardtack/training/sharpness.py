"""Minimising the loss of a neighbourhood of the weights rather than of a point: SAM and AWP.

Both take the gradient twice. The first moves the weights to where the loss is higher; the second is taken there, on
the same images, and applied to the weights as they were.

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
    """`rho` is the length of the displacement: 0.05 for `sam` unless given; for `awp`, relative to each layer, 0.005.

    Before `from_epoch` the gradient is taken once, as without.
    """

    name: Literal["none", "sam", "awp"] = "none"
    rho: Annotated[float, Field(ge=0)] | None = None
    adaptive: bool = False
    from_epoch: Annotated[float, Field(ge=0)] = 0.0

    def __post_init__(self) -> None:
        if self.adaptive and self.name != "sam":
            raise UserError(f"adaptive belongs to sam; {self.name} has no such thing")
        if self.name == "none" and (self.rho is not None or self.from_epoch > 0):
            raise UserError("rho and from_epoch belong to sam and awp: name one, sharpness.name=sam, or leave them out")

    def remarks(self, *, epochs: float) -> Iterator[str]:
        if self.name != "none" and self.from_epoch >= epochs:
            yield f"never comes to {self.name}: sharpness.from_epoch {self.from_epoch:g} lies at its end or after it"

    def due(self, epoch: float) -> bool:
        return self.name != "none" and epoch >= self.from_epoch

    @torch.no_grad()
    def displacement(self, weights: list[Tensor], gradients: list[Tensor]) -> Sequence[Tensor]:
        """What is added to each of the weights. All of them at once: a network has hundreds of small ones."""
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
        """Inside the block the weights stand displaced along their gradients; afterwards where they were, to the bit.

        The gradients are used up on entry: they may lie in memory that the next backward pass overwrites.
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


def keep(micro_batch: MicroBatch) -> MicroBatch:
    """What was prepared, in memory of its own: that of a graph's replay lasts until the next one."""
    x, y, prepared = micro_batch
    return x, y, {name: value.clone() if isinstance(value, Tensor) else value for name, value in prepared.items()}


@contextlib.contextmanager
def unwritten(module: nn.Module) -> Iterator[None]:
    """What the block writes to the buffers (statistics of batch norm) is taken back: one batch counts once."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in kept:
                buffer.copy_(old)
