"""Vision transformer with conditional positions (CPVT, Chu et al. 2021).

ViT without a table of positions: after the first block a depthwise 3×3 convolution over the grid of tokens is added
to them. Its zero padding tells a token how far the border is, and its taps tell neighbours apart. Since nothing
depends on the number of tokens, images of any size go in; an edge that is no multiple of the patch loses the rest, as
under any strided convolution. The class token is left out of the convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base.registry import models
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    ramp,
    require_heads,
    require_hidden,
    require_positive,
    require_rate,
    start_small,
)
from hardtack.models.zoo.vit import Block, PatchEmbedding


class PositionGenerator(nn.Module):
    """x + depthwise 3×3 convolution of x: N×width×H×W to the same."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.proj(x)


@models.register(
    "cpvt_small_patch16_224", help="vision transformer with conditional positions, small", patch_size=16, width=384,
    heads=6, class_token=True,
)  # fmt: skip
@models.register(
    "cpvt_tiny_patch16_224", help="vision transformer with conditional positions, tiny", patch_size=16,
    class_token=True,
)  # fmt: skip
@models.register(
    "cpvt.arg", help="paper 3's vision transformer with conditional positions", papers=("arg",), width=512, depth=6,
    heads=8, mlp_ratio=1.0, qkv_bias=False, class_token=True,
)  # fmt: skip
@models.register("cpvt_tiny_patch4_32", help="vision transformer with conditional positions, tiny")
class ConditionalTransformer(nn.Module):
    """Vision transformer with conditional positions: N×3×H×W to N×num_classes.

    Without `class_token` the tokens are averaged, the better form of the two in the paper. `drop_path` is the rate of
    the last block; earlier blocks drop linearly less.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        patch_size: int = 4,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        class_token: bool = False,
        activation: Activation = "gelu",
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        require_positive(patch_size=patch_size, depth=depth)
        require_heads(width, heads)
        hidden = require_hidden(width, mlp_ratio)
        require_rate(drop_path=drop_path)
        self.num_classes, self.num_prefix_tokens = num_classes, int(class_token)
        self.patch_embed = PatchEmbedding(patch_size=patch_size, width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.blocks = nn.ModuleList(
            Block(
                Attention(width=width, heads=heads, qkv_bias=qkv_bias),
                Mlp(width=width, hidden=hidden, activation=activation),
                width=width, drop_path=rate,
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.positions = PositionGenerator(width=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.patch_embed.proj.weight, std=0.02)
        nn.init.zeros_(self.patch_embed.proj.bias)  # type: ignore[arg-type]
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def place(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Add to every token, except the class token, what its neighbourhood on the grid says."""
        prefix, tokens = x[:, : self.num_prefix_tokens], x[:, self.num_prefix_tokens :]
        tokens = self.positions(tokens.transpose(1, 2).unflatten(2, grid)).flatten(2).transpose(1, 2)
        return torch.cat([prefix, tokens], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        size = self.patch_embed.patch_size
        rows, columns = x.shape[-2] // size, x.shape[-1] // size
        x = self.patch_embed(x[..., : rows * size, : columns * size])
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index == 0:
                x = self.place(x, (rows, columns))
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls_token is None else x[:, 0])
