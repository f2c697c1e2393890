"""Networks that sum row by row: their numbers do not depend on the batch they are computed in, to the last bit."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Rows(nn.Module):
    """Waves of a random projection of 3×4×4 images; `rough` waves are fooled by smaller perturbations."""

    first: Tensor
    last: Tensor

    def __init__(self, classes: int = 5, seed: int = 0, rough: float = 1.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("first", torch.randn(16, 48, generator=generator) * rough / 48**0.5)
        self.register_buffer("last", torch.randn(classes, 16, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        hidden = (6 * (x.flatten(1)[:, None] * self.first).sum(dim=-1)).sin()
        return (hidden[:, None] * self.last).sum(dim=-1)


def row_pair(model: nn.Module, count: int = 24, *, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Images, and the labels that the model gives them."""
    x = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return x, model(x).argmax(dim=1)
