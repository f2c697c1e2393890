"""Tokens-to-token vision transformer (T2T-ViT_t, Yuan et al. 2021): overlapping patches of patches become tokens.

The image is cut into overlapping patches, a narrow transformer with one head mixes them, the result is laid out as an
image and cut again: neighbouring tokens melt into one. A deep and narrow ViT with a class token and fixed sinusoid
positions reads the tokens. The narrow transformers are blocks like the others, only that their tokens change width on
the way: the values take the place of the residual. Norms have ViT's epsilon here, 1e-6 and not 1e-5.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    attend,
    padding_for,
    ramp,
    require_heads,
    require_hidden,
    require_positive,
    require_rate,
    require_stages,
    start_small,
)
from hardtack.models.zoo.vit import Block


def soft_split(images: Tensor, *, kernel: int, stride: int) -> Tensor:
    """Overlapping patches, `stride` apart, as tokens: N×C×H×W to N×T×(C·kernel²)."""
    return F.unfold(images, kernel, stride=stride, padding=padding_for(kernel, stride=stride)).transpose(1, 2)


def split_edge(edge: int, *, kernel: int, stride: int) -> int:
    """How many patches of `soft_split` lie along an edge: edge/stride of odd kernels, of even ones it can be more."""
    return (edge + 2 * padding_for(kernel, stride=stride) - kernel) // stride + 1


def sinusoids(tokens: int, width: int) -> Tensor:
    """Fixed positions, 1×tokens×width: sines on even channels, cosines on odd ones, slower from pair to pair."""
    channel = torch.arange(width, dtype=torch.float64)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * 10000 ** (-2 * (channel // 2) / width)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()[None]


class SingleHeadAttention(nn.Module):
    """N×T×inputs and its values N×T×width to N×T×width; scores are divided by the root of `inputs`."""

    attention: ClassVar[str] = "token"

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.qk = nn.Linear(inputs, 2 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.scale = inputs**-0.5

    def forward(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self.qk(x)[:, None].chunk(2, dim=-1)
        return self.proj(attend(q, k, v[:, None], scale=self.scale).squeeze(1))


class TokenBlock(nn.Module):
    """A transformer block from one width to another, N×T×inputs to N×T×width; its shortcut are the values."""

    def __init__(self, inputs: int, width: int, *, activation: Activation = "gelu") -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(inputs, eps=1e-6)
        self.value = nn.Linear(inputs, width, bias=False)
        self.attn = SingleHeadAttention(inputs, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=width, activation=activation)

    def values(self, x: Tensor) -> Tensor:
        return self.value(self.norm1(x))

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(self.norm1(x), self.values(x))

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x)
        v = self.value(x)
        x = v + self.attn(x, v)
        return x + self.feed(x)

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend, identity=self.values), Branch("mlp", self.feed)


@models.register(
    "t2t_vit_t_24_224", help="tokens-to-token vision transformer, 24 layers", papers=("rspc",), image_size=224,
    width=512, depth=24, heads=8,
)  # fmt: skip
@models.register(
    "t2t_vit_t_14_224", help="tokens-to-token vision transformer, 14 layers", papers=("rspc",), image_size=224
)
@models.register(
    "t2t_vit_t_14_32", help="tokens-to-token vision transformer, 14 layers, 8×8 tokens", kernels=(3, 3, 3),
    strides=(1, 2, 2),
)  # fmt: skip
class TokensToTokenTransformer(nn.Module):
    """Tokens-to-token vision transformer: N×3×image_size×image_size to N×num_classes.

    Split `i` cuts patches of `kernels[i]` that lie `strides[i]` apart; between two splits stands a narrow transformer
    of `token_width`. With odd kernels there are (image_size / product of strides)² tokens. `drop_path` is the rate of
    the last block; earlier blocks drop linearly less, and the narrow ones not at all.
    """

    pos_embed: Tensor

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        kernels: tuple[int, ...] = (7, 3, 3),
        strides: tuple[int, ...] = (4, 2, 2),
        token_width: int = 64,
        width: int = 384,
        depth: int = 14,
        heads: int = 6,
        mlp_ratio: float = 3.0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        splits = require_stages(kernels=kernels, strides=strides)
        require_positive(image_size=image_size, kernels=min(kernels), strides=min(strides))
        require_positive(token_width=token_width, depth=depth)
        require_heads(width, heads)
        hidden = require_hidden(width, mlp_ratio)
        require_rate(drop_path=drop_path)
        shrink = math.prod(strides)
        if image_size % shrink:
            raise UserError(f"image_size {image_size} is no multiple of {shrink}, the product of strides {strides}")
        for kernel, stride in zip(kernels, strides, strict=True):
            if kernel < stride:
                raise UserError(f"patches of {kernel} pixels that lie {stride} apart leave pixels out")
        self.num_classes, self.image_size, self.num_prefix_tokens = num_classes, image_size, 1
        self.kernels, self.strides, self.edges = kernels, strides, list[int]()
        edge = image_size
        for kernel, stride in zip(kernels, strides, strict=True):
            edge = split_edge(edge, kernel=kernel, stride=stride)
            self.edges.append(edge)
        inputs = [(3 if i == 0 else token_width) * kernels[i] ** 2 for i in range(splits)]
        self.token_blocks = nn.ModuleList(
            TokenBlock(inputs[i], token_width, activation=activation) for i in range(splits - 1)
        )
        self.project = nn.Linear(inputs[-1], width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.register_buffer("pos_embed", sinusoids(edge**2 + 1, width))
        self.blocks = nn.ModuleList(
            Block(
                Attention(width=width, heads=heads, qkv_bias=False),
                Mlp(width=width, hidden=hidden, activation=activation),
                width=width, drop_path=rate,
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def tokens(self, x: Tensor) -> Tensor:
        """N×3×image_size×image_size to N×T×width."""
        for block, kernel, stride, edge in zip(self.token_blocks, self.kernels, self.strides, self.edges, strict=False):
            x = block(soft_split(x, kernel=kernel, stride=stride)).transpose(1, 2).unflatten(2, (edge, edge))
        return self.project(soft_split(x, kernel=self.kernels[-1], stride=self.strides[-1]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])
