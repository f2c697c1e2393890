"""The residual branches of a block: what it adds to its input, so that a Jacobian can be taken with or without x.

A block is anything with a method `branches()`; applying them one after another is the block in eval mode. Blocks of
timm and torchvision have no such method; they are read here by the names of their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Branch:
    """x ↦ after(identity(x) + function(x)), in eval mode. None stands for x itself, and for nothing after."""

    kind: str  # attention, mlp, convolution, pooling, …; parallel ones as attention+convolution
    function: Function
    identity: Function | None = None
    after: Function | None = None

    def __call__(self, x: Tensor) -> Tensor:
        out = (x if self.identity is None else self.identity(x)) + self.function(x)
        return out if self.after is None else self.after(out)
