"""The distance between the features of damaged and clean images, recorded by hooks while the model runs.

Hooks are set once, when the objective is built, so that a compiled objective traces them; outside `begin` … `end` they
do nothing. They are plain functions, so a copy of the model (its moving average) keeps them at no cost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hardtack.models import Block, find_blocks


def aligned_blocks(model: nn.Module) -> list[Block]:
    """The blocks whose attention is not only that of the class token; all blocks of a network without attention.

    These are all blocks of RVT and ViT, and the FAN blocks of FAN, without the ConvNeXt stem and the class attention.
    """
    blocks = find_blocks(model)
    attending = [block for block in blocks if {part.kind for part in block.attending} - {"class"}]
    return attending or blocks


class Alignment:
    """The mean over blocks of the mean squared difference between the outputs of the two halves of a batch.

    The first half is damaged, the second clean; with `detach_clean` no gradient flows into the clean one.
    """

    def __init__(self, model: nn.Module, *, detach_clean: bool) -> None:
        self.detach_clean = detach_clean
        self.blocks = aligned_blocks(model)
        self.distances: list[Tensor] | None = None

        def record(module: nn.Module, args: Any, output: Any) -> None:
            if self.distances is not None:
                self.distances.append(self.distance(output[0] if isinstance(output, tuple) else output))

        for block in self.blocks:
            block.module.register_forward_hook(record)

    def distance(self, features: Tensor) -> Tensor:
        """Of features 2N×…, in fp32. The difference is taken before the cast to fp32, which halves the memory."""
        damaged, clean = features.chunk(2)
        return (damaged - (clean.detach() if self.detach_clean else clean)).float().square().mean()

    def begin(self) -> None:
        self.distances = []

    def end(self) -> Tensor | None:
        """The alignment of the one pass since `begin`; None for a model without blocks."""
        distances, self.distances = self.distances, None
        return torch.stack(distances).mean() if distances else None
