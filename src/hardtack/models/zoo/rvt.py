"""RVT, the robust vision transformer (Mao et al. 2022), plain and "plus", at 32 and 224 pixels.

No positions and no class token: a convolutional stem, depthwise convolutions between the two layers of every MLP, and
average pooling. The plus networks (RVT*) learn for every pair of tokens how much its attention score counts: in the
first blocks scores are multiplied by the sigmoid of a table before the softmax. RVT-Ti pools its tokens once on the
way. Structure and parameter names are those of the code that RSPC (Guo et al. 2023) trains, where RVT-B has a plain
MLP and RVT-B* tables in 5 blocks; the 91.8 M parameters printed for RVT-B* are those of tables in all 12. For 32
pixels the stem keeps the full image until the patches are cut, and the tables fit the smaller grid.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    PatchConvolution,
    activate,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
    require_stages,
)
from hardtack.models.zoo.vit import Block

Stem = Literal["pooled", "plain"]
MlpKind = Literal["convolution", "linear"]


class RobustStem(nn.Module):
    """A convolution with batch norm, then patches: N×3×H×W to N×width×h×w.

    "pooled" has quartered the image before it is cut (a 7×7 convolution of stride 2 and max-pooling), as published for
    224 pixels; "plain" is a 3×3 convolution at full size.
    """

    def __init__(self, *, kind: Stem, patch_size: int, width: int) -> None:
        super().__init__()
        if kind == "pooled" and patch_size % 4:
            raise UserError(f"the pooled stem shrinks images by 4, which patch_size {patch_size} is no multiple of")
        first = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)]
        if kind == "pooled":
            first = [nn.Conv2d(3, 32, 7, stride=2, padding=2), nn.BatchNorm2d(32), nn.MaxPool2d(3, stride=2, padding=1)]
        rest = patch_size // 4 if kind == "pooled" else patch_size
        self.proj = nn.Sequential(*first, PatchConvolution(32, width, size=rest))

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class ScaledAttention(Attention):
    """Self-attention over N×T×width whose scores are multiplied by sigmoid(table), heads×T×T, before the softmax."""

    def __init__(self, *, width: int, heads: int, tokens: int) -> None:
        super().__init__(width=width, heads=heads)
        self.att_mask = nn.Parameter(torch.zeros(heads, tokens, tokens))
        nn.init.trunc_normal_(self.att_mask, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).transpose(1, 3).unbind(2)
        scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 * self.att_mask.sigmoid())
        weights = scores.softmax(dim=-1)
        return self.proj((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))


class ConvolutionalMlp(nn.Module):
    """1×1, depthwise 3×3 and 1×1 convolutions, each with batch norm: N×H×W×width to the same."""

    def __init__(self, *, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, hidden, 1)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.bn2 = nn.BatchNorm2d(hidden)
        self.act = activate(activation)
        self.fc2 = nn.Conv2d(hidden, width, 1)
        self.bn3 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(self.fc1(x.permute(0, 3, 1, 2))))
        x = self.act(self.bn2(self.dwconv(x)))
        return self.bn3(self.fc2(x)).permute(0, 2, 3, 1)


class RobustBlock(Block):
    """ViT's block on N×H×W×width; attention takes the tokens in a row, the MLP on their grid."""

    channels_last: ClassVar[bool] = True

    def attend(self, x: Tensor) -> Tensor:
        return super().attend(x.flatten(1, 2)).unflatten(1, x.shape[1:3])


class Stage(nn.Module):
    """Blocks on one grid."""

    def __init__(self, blocks: list[RobustBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Pool(nn.Module):
    """Halve the grid, every channel becoming outputs/inputs new ones: N×H×W×inputs to N×h×w×outputs.

    A grouped convolution, done as a depthwise one of repeated channels: cuDNN takes groups of one channel each by
    itself when many images come at once (benchmarks/grouped_convolution.py).
    """

    def __init__(self, *, inputs: int, outputs: int) -> None:
        super().__init__()
        self.copies = outputs // inputs
        self.conv = nn.Conv2d(outputs, outputs, 3, stride=2, padding=1, groups=outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.repeat_interleave(self.copies, dim=-1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class RobustTransformer(nn.Module):
    """Robust vision transformer: N×3×image_size×image_size to N×num_classes.

    `widths`, `depths` and `heads` have one number per stage. The first `masked_blocks` blocks have tables, which is
    all that ties the network to its `image_size`. Block i of n (from 0) drops its branches at the rate `drop_path`·i/n,
    as in the official code: the last block at 11/12 of it, where other networks here reach the full rate.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        stem: Stem = "plain",
        widths: tuple[int, ...] = (384,),
        depths: tuple[int, ...] = (12,),
        heads: tuple[int, ...] = (6,),
        mlp_ratio: float = 4.0,
        mlp: MlpKind = "convolution",
        masked_blocks: int = 0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_stages(widths=widths, depths=depths, heads=heads)
        for width, depth, count in zip(widths, depths, heads, strict=True):
            require_positive(depth=depth)
            require_heads(width, count)
        for width, following in pairwise(widths):
            if following % width:
                raise UserError(f"the width of a stage must be a multiple of that before it; found {widths=}")
        if not 0 <= masked_blocks <= sum(depths):
            raise UserError(f"masked_blocks must lie between 0 and all {sum(depths)} blocks, found {masked_blocks}")
        require_rate(drop_path=drop_path)
        grid = require_patches(image_size, patch_size)
        self.num_classes, self.image_size = num_classes, image_size
        self.patch_embed = RobustStem(kind=stem, patch_size=patch_size, width=widths[0])
        self.transformers, self.pools = nn.ModuleList(), nn.ModuleList()
        total, kind = sum(depths), ConvolutionalMlp if mlp == "convolution" else Mlp
        for stage, (width, depth, count) in enumerate(zip(widths, depths, heads, strict=True)):
            if stage:
                self.pools.append(Pool(inputs=widths[stage - 1], outputs=width))
                grid = (grid + 1) // 2
            start = sum(depths[:stage])
            blocks = [
                RobustBlock(
                    ScaledAttention(width=width, heads=count, tokens=grid**2)
                    if index < masked_blocks
                    else Attention(width=width, heads=count),
                    kind(width=width, hidden=require_hidden(width, mlp_ratio), activation=activation),
                    width=width, drop_path=drop_path * index / total,
                )
                for index in range(start, start + depth)
            ]  # fmt: skip
            self.transformers.append(Stage(blocks))
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transformers[0](self.patch_embed(x).permute(0, 2, 3, 1))
        for pool, stage in zip(self.pools, self.transformers[1:], strict=True):
            x = stage(pool(x))
        return self.head(self.norm(x.mean((1, 2))))


_PIXELS: dict[int, dict[str, Any]] = {
    32: {"image_size": 32, "patch_size": 4, "stem": "plain"},
    224: {"image_size": 224, "patch_size": 16, "stem": "pooled"},
}


def _enter(size: str, *, masked_blocks: int, **presets: Any) -> None:
    """Register a size plain and plus, for small and for large images."""
    for pixels, images in _PIXELS.items():
        help = f"robust vision transformer, {size}"
        models.register(f"rvt_{size}_{pixels}", help=help, papers=("rspc",), **presets, **images)(RobustTransformer)
        models.register(
            f"rvt_{size}_plus_{pixels}", help=f"{help}, with learned attention scaling", papers=("rspc",),
            masked_blocks=masked_blocks, **presets, **images,
        )(RobustTransformer)  # fmt: skip


_enter("tiny", widths=(192, 384), depths=(10, 2), heads=(6, 12), masked_blocks=10)
_enter("small", widths=(384,), depths=(12,), heads=(6,), masked_blocks=5)
_enter("base", widths=(768,), depths=(12,), heads=(12,), mlp="linear", masked_blocks=5)
