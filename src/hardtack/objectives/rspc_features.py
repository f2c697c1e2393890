"""How far apart the features of damaged and clean images are, heard while the model runs.

Hooks are set once, when the objective is built, so that a compiled objective traces them; outside `begin` … `end`
they do nothing. They are plain functions: a copy of the model (its moving average) takes them along at no cost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hardtack.models import Block, find_blocks


def aligned_blocks(model: nn.Module) -> list[Block]:
    """The blocks with attention that is not the class token's alone; of a network without any, all blocks.

    RVT's and ViT's are all of them; FAN's are the FAN blocks, without the ConvNeXt stem and the class attention.
    """
    blocks = find_blocks(model)
    attending = [block for block in blocks if {one.kind for one in block.attending} - {"class"}]
    return attending or blocks


class Alignment:
    """The mean over blocks of the mean squared difference between the outputs of the two halves of a batch.

    The first half is damaged, the second clean; with `detach_clean` no gradient flows into the clean one.
    """

    def __init__(self, model: nn.Module, *, detach_clean: bool) -> None:
        self.detach_clean = detach_clean
        self.blocks = aligned_blocks(model)
        self.heard: list[Tensor] | None = None

        def hear(module: nn.Module, args: Any, output: Any) -> None:
            if self.heard is not None:
                self.heard.append(self.distance(output[0] if isinstance(output, tuple) else output))

        for block in self.blocks:
            block.module.register_forward_hook(hear)

    def distance(self, features: Tensor) -> Tensor:
        """Of features 2N×…, in fp32; a difference is taken before it is widened, which halves what is kept."""
        damaged, clean = features.chunk(2)
        return (damaged - (clean.detach() if self.detach_clean else clean)).float().square().mean()

    def begin(self) -> None:
        self.heard = []

    def end(self) -> Tensor | None:
        """The alignment of the one pass since `begin`; None for a model without blocks."""
        heard, self.heard = self.heard, None
        return torch.stack(heard).mean() if heard else None
