"""The pyramid vision transformer, first version (PVT, Wang et al. 2021): four stages, each on a coarser grid.

Every stage cuts what comes in into patches, adds positions of its own and runs blocks whose keys and values come from
a grid that a strided convolution has made smaller; otherwise attention over the fine grids would be too much. Where
the ratio is 1, as in the last stage, which also has the class token, the blocks are ViT's. The published models cut
224 pixels into patches of 4; those for 32 pixels begin with patches of 2 and reduce the keys to 4×4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    PatchConvolution,
    attend,
    ramp,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
    require_stages,
    start_small,
)
from hardtack.models.zoo.vit import Block


class ReducedAttention(nn.Module):
    """Attention of all tokens to those of a grid `reduction` times coarser: N×grid²×width to the same."""

    attention: ClassVar[str] = "reduced"

    def __init__(self, *, width: int, heads: int, grid: int, reduction: int) -> None:
        super().__init__()
        self.num_heads, self.grid = heads, grid
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, reduction, stride=reduction)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        coarse = self.reduce(x.transpose(1, 2).unflatten(2, (self.grid, self.grid)))
        coarse = self.norm(coarse.flatten(2).transpose(1, 2))
        q = self.q(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        k, v = self.kv(coarse).unflatten(2, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class Stage(nn.Module):
    """Patches, positions and blocks: N×inputs×H×W to N×grid²×width, one token more where there is a class token."""

    def __init__(
        self, inputs: int, width: int, *, patch_size: int, grid: int, class_token: bool, blocks: list[nn.Module]
    ) -> None:
        super().__init__()
        self.grid = grid
        self.proj = PatchConvolution(inputs, width, size=patch_size)
        self.norm = nn.LayerNorm(width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, grid**2 + int(class_token), width))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.proj(x).flatten(2).transpose(1, 2))
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return x


DEPTHS = {"tiny": (2, 2, 2, 2), "small": (3, 4, 6, 3), "medium": (3, 4, 18, 3), "large": (3, 8, 27, 3)}


def _sized(letter: str, size: int, **presets: Any) -> Callable[[Any], Any]:
    said = f"pyramid vision transformer, {letter}"
    return models.register(f"pvt_{letter}_{size}", help=said, image_size=size, depths=DEPTHS[letter], **presets)


@_sized("large", 224, papers=("rspc",))
@_sized("medium", 224)
@_sized("small", 224, papers=("rspc",))
@_sized("tiny", 224, papers=("rspc",))
@_sized("small", 32, patch_size=2, reductions=(4, 2, 1, 1))
@_sized("tiny", 32, patch_size=2, reductions=(4, 2, 1, 1))
class PyramidTransformer(nn.Module):
    """Pyramid vision transformer: N×3×image_size×image_size to N×num_classes.

    The first stage cuts patches of `patch_size`, every later one of 2; in stage `i` keys and values come from a grid
    `reductions[i]` times coarser. The class token joins in the last stage, which therefore cannot be reduced.
    `drop_path` is the rate of the last block; earlier blocks drop linearly less.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        widths: tuple[int, ...] = (64, 128, 320, 512),
        depths: tuple[int, ...] = (2, 2, 2, 2),
        heads: tuple[int, ...] = (1, 2, 5, 8),
        mlp_ratios: tuple[float, ...] = (8.0, 8.0, 4.0, 4.0),
        reductions: tuple[int, ...] = (8, 4, 2, 1),
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        count = require_stages(widths=widths, depths=depths, heads=heads, mlp_ratios=mlp_ratios, reductions=reductions)
        require_positive(depths=min(depths), reductions=min(reductions))
        require_rate(drop_path=drop_path)
        if reductions[-1] != 1:
            raise UserError(f"the class token is in the last stage, so reductions must end in 1, found {reductions}")
        self.num_classes, self.image_size, self.num_prefix_tokens = num_classes, image_size, 1
        grids = self._grids(require_patches(image_size, patch_size), reductions)
        rates = iter(ramp(drop_path, sum(depths)))
        self.stages = nn.ModuleList()
        for i, (width, grid, reduction) in enumerate(zip(widths, grids, reductions, strict=True)):
            require_heads(width, heads[i])
            hidden = require_hidden(width, mlp_ratios[i], name="mlp_ratios")
            given: dict[str, Any] = {"width": width, "heads": heads[i]}
            blocks: list[nn.Module] = [
                Block(
                    Attention(**given) if reduction == 1 else ReducedAttention(**given, grid=grid, reduction=reduction),
                    Mlp(width=width, hidden=hidden, activation=activation),
                    width=width, drop_path=next(rates),
                )
                for _ in range(depths[i])
            ]  # fmt: skip
            inputs, patch = (3, patch_size) if i == 0 else (widths[i - 1], 2)
            last = i == count - 1
            self.stages.append(Stage(inputs, width, patch_size=patch, grid=grid, class_token=last, blocks=blocks))
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], num_classes)
        start_small(self)
        for name, table in self.named_parameters():
            if name.endswith(("pos_embed", "cls_token")):
                nn.init.trunc_normal_(table, std=0.02)

    @staticmethod
    def _grids(grid: int, reductions: tuple[int, ...]) -> list[int]:
        """Tokens along an edge in each stage, if every stage can be halved and reduced."""
        grids = [grid]
        for _ in reductions[1:]:
            if grids[-1] % 2:
                raise UserError(f"{grids[-1]}×{grids[-1]} tokens of stage {len(grids)} cannot be halved by the next")
            grids.append(grids[-1] // 2)
        for edge, reduction in zip(grids, reductions, strict=True):
            if edge % reduction:
                raise UserError(f"a stage of {edge}×{edge} tokens cannot be reduced {reduction} times")
        return grids

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages[:-1]:
            x = stage(x).transpose(1, 2).unflatten(2, (stage.grid, stage.grid))
        return self.head(self.norm(self.stages[-1](x))[:, 0])
