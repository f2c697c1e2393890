"""Defences around the demo's digits model that hide its gradients, and what an adaptive attack needs to break them.

docs/trust.md walks through them. They are made to look robust: each keeps the accuracy and the values of a network that
has no defence at all, and only its gradient is of no use to an attack.
"""

import torch
from torch import Tensor, nn

import hardtack as ht

CORE = "runs/demo/standard"  # what `hardtack demo` trains first: no defence, robust accuracy 0 % at linf:0.1


class Ripple(nn.Module):
    """Adds a ripple of a quarter of a grey level to every pixel. Its slope is ±100, so the gradient is noise."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ht.load_run(CORE)

    def forward(self, x: Tensor) -> Tensor:
        return self.core(x + 0.001 * torch.sin(1e5 * x))


class Quantised(nn.Module):
    """Rounds every pixel to one of nine levels. Its backward pass looks like a gradient, with random signs."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ht.load_run(CORE)

    def forward(self, x: Tensor) -> Tensor:
        return self.core(self.rounded(x))

    def rounded(self, x: Tensor) -> Tensor:
        signs = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0)).sign().to(x)
        slope = 0.001 * signs * (x - x.detach())
        return (x.detach() * 8).round() / 8 + slope


class RandomRipple(nn.Module):
    """Adds a ripple whose phase is drawn anew at every call, for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ht.load_run(CORE)

    def forward(self, x: Tensor) -> Tensor:
        return self.core(x + 0.01 * torch.sin(1000 * x + 2 * torch.pi * torch.rand_like(x)))


def straight_through(model: nn.Module) -> nn.Module:
    """The surrogate of `Quantised` for attack.bpda: the rounding is done forwards and ignored backwards."""
    defence = model.body  # hardtack puts normalisation in front of a user's module, the body

    class StraightThrough(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return defence.core(x + (defence.rounded(x) - x).detach())

    return StraightThrough()


if __name__ == "__main__":
    print(__doc__)
