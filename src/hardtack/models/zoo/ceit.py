"""The convolution-enhanced image transformer (CeiT, Yuan et al. 2021).

Three changes to ViT: a convolution with pooling before the patches, a feed-forward with a depthwise convolution over
the grid of tokens (LeFF), which the class token passes by, and a last block in which the class token of the last
layer attends to those of all layers. The models at 224 pixels follow the authors' code, whose stem has 64 channels
(the paper says 32, but its 6.4 M parameters are those of 64). Paper 3's follows another implementation; its presets
say in what.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    PatchConvolution,
    activate,
    attend,
    ramp,
    require_heads,
    require_hidden,
    require_positive,
    require_rate,
    start_small,
)
from hardtack.models.zoo.vit import Block


class LocalFeedForward(nn.Module):
    """Wider, a depthwise 3×3 convolution over the grid, and back: N×(1+grid²)×width to the same.

    The class token, which comes first, is not among what is convolved: it is handed back as it came with
    `repeat_class`, so that the residual sum adds it to itself, and as zero without, so that the sum leaves it alone.
    """

    def __init__(
        self,
        *,
        width: int,
        hidden: int,
        grid: int,
        repeat_class: bool = True,
        depthwise_bias: bool = True,
        last_activation: bool = False,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        self.grid, self.repeat_class = grid, repeat_class
        self.up = nn.Sequential(nn.Conv2d(width, hidden, 1), nn.BatchNorm2d(hidden), activate(activation))
        depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=depthwise_bias)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(hidden), activate(activation))
        last = [activate(activation)] if last_activation else []
        self.down = nn.Sequential(nn.Conv2d(hidden, width, 1), nn.BatchNorm2d(width), *last)

    def forward(self, x: Tensor) -> Tensor:
        first, tokens = x[:, :1], x[:, 1:]
        images = tokens.transpose(1, 2).unflatten(2, (self.grid, self.grid))
        tokens = self.down(self.depthwise(self.up(images))).flatten(2).transpose(1, 2)
        return torch.cat([first if self.repeat_class else torch.zeros_like(first), tokens], dim=1)


class LastAttention(nn.Module):
    """The last of the tokens attends to all of them: N×T×width to N×1×width."""

    attention: ClassVar[str] = "class"

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x[:, -1:]).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(2, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class ClassBlock(nn.Module):
    """The class token of the last layer looks at those of all layers: N×depth×width to N×1×width."""

    def __init__(self, *, width: int, heads: int, hidden: int, activation: Activation = "gelu") -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = LastAttention(width=width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation)

    def last(self, x: Tensor) -> Tensor:
        return x[:, -1:]

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(self.norm1(x))

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(x) + self.attend(x)
        return x + self.feed(x)

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend, identity=self.last), Branch("mlp", self.feed)


@models.register(
    "ceit_small_224", help="convolution-enhanced image transformer, small", image_size=224, width=384, heads=6
)
@models.register("ceit_tiny_224", help="convolution-enhanced image transformer, tiny", image_size=224)
@models.register(
    "ceit.arg", help="paper 3's convolution-enhanced image transformer; only 2×2 tokens of 32 pixels", papers=("arg",),
    stem_width=32, stem_bias=True, qkv_bias=False, depthwise_bias=False, last_activation=True, repeat_class=False,
    layer_class_attention=False,
)  # fmt: skip
@models.register(
    "ceit_tiny_32", help="convolution-enhanced image transformer, tiny, 8×8 tokens", stem_kernel=3, stem_stride=1,
    patch_size=2,
)  # fmt: skip
class ConvolutionEnhancedTransformer(nn.Module):
    """Convolution-enhanced image transformer: N×3×image_size×image_size to N×num_classes.

    A convolution of `stem_kernel` and `stem_stride` and a pooling to half the size come before the patches, so that
    there are (image_size / (2 · stem_stride · patch_size))² tokens. `drop_path` is the rate of the last block;
    earlier blocks drop linearly less. For `repeat_class`, `depthwise_bias` and `last_activation` see LocalFeedForward.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        stem_width: int = 64,
        stem_kernel: int = 7,
        stem_stride: int = 2,
        stem_bias: bool = False,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
        qkv_bias: bool = True,
        depthwise_bias: bool = True,
        last_activation: bool = False,
        repeat_class: bool = True,
        layer_class_attention: bool = True,
    ) -> None:
        super().__init__()
        require_positive(image_size=image_size, patch_size=patch_size, depth=depth)
        require_positive(stem_width=stem_width, stem_kernel=stem_kernel, stem_stride=stem_stride)
        require_heads(width, heads)
        hidden = require_hidden(width, mlp_ratio)
        require_rate(drop_path=drop_path)
        edge = (image_size + 2 * (stem_kernel // 2) - stem_kernel) // stem_stride + 1  # after the convolution
        edge = (edge - 1) // 2 + 1  # after the pooling
        if edge % patch_size:
            raise UserError(
                f"of image_size {image_size} the stem leaves {edge}×{edge} pixels, "
                f"which cannot be cut into patches of {patch_size}"
            )
        grid = edge // patch_size
        self.num_classes, self.image_size, self.num_prefix_tokens = num_classes, image_size, 1
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem_width, stem_kernel, stride=stem_stride, padding=stem_kernel // 2, bias=stem_bias),
            nn.BatchNorm2d(stem_width),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.patch_embed = PatchConvolution(stem_width, width, size=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid**2, width))
        self.blocks = nn.ModuleList(
            Block(
                Attention(width=width, heads=heads, qkv_bias=qkv_bias),
                LocalFeedForward(
                    width=width, hidden=hidden, grid=grid, repeat_class=repeat_class, depthwise_bias=depthwise_bias,
                    last_activation=last_activation, activation=activation,
                ),
                width=width, drop_path=rate,
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.layer_embed = nn.Parameter(torch.zeros(1, depth, width)) if layer_class_attention else None
        last = [ClassBlock(width=width, heads=heads, hidden=hidden, activation=activation)]
        self.class_blocks = nn.ModuleList(last if layer_class_attention else [])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(self.stem(x)).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        first = []
        for block in self.blocks:
            x = block(x)
            first.append(x[:, 0])
        if self.layer_embed is not None:
            x = torch.stack(first, dim=1) + self.layer_embed
            for block in self.class_blocks:
                x = block(x)
        return self.head(self.norm(x[:, 0]))
