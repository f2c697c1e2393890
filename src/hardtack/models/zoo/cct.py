"""The compact convolutional transformer (Hassani et al. 2021): convolutions make the tokens, a learned mean reads them.

Two things set its layers apart from ViT's: the second norm is applied to the stream itself, so that the MLP is added
to normalised values, and a softmax over a score per token ("sequence pooling") stands for the class token. As
published, weights of the attention are dropped in training, and the tokenizer has ReLU where the MLPs have GELU.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    DropPath,
    Mlp,
    activate,
    ramp,
    require_heads,
    require_hidden,
    require_positive,
    require_rate,
    start_small,
)

STEM_WIDTH = 64
"""Channels between the convolutions of a tokenizer that has several."""


class Tokenizer(nn.Module):
    """`convolutions` times a convolution, an activation and max-pooling to half the size: N×3×H×W to N×T×width."""

    def __init__(
        self, *, convolutions: int, kernel_size: int, stride: int, width: int, activation: Activation = "relu"
    ) -> None:
        super().__init__()
        channels = [3] + [STEM_WIDTH] * (convolutions - 1) + [width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(channels):
            layers += [
                nn.Conv2d(inputs, outputs, kernel_size, stride=stride, padding=kernel_size // 2, bias=False),
                activate(activation),
                nn.MaxPool2d(3, stride=2, padding=1),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten(2).transpose(1, 2)


def grid_of(image_size: int, *, convolutions: int, kernel_size: int, stride: int) -> int:
    """How many tokens the tokenizer makes along an edge."""
    edge = image_size
    for _ in range(convolutions):
        edge = (edge + 2 * (kernel_size // 2) - kernel_size) // stride + 1  # the convolution
        edge = (edge - 1) // 2 + 1  # the pooling
    return edge


class DroppedAttention(Attention):
    """Self-attention of which single weights are dropped, in training only."""

    def __init__(self, *, width: int, heads: int, dropout: float) -> None:
        super().__init__(width=width, heads=heads, qkv_bias=False)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.dropout == 0.0:
            return super().forward(x)
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
        return self.proj(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm x), normalised, then the MLP added to that: N×T×width to N×T×width."""

    def __init__(
        self, *, width: int, heads: int, hidden: int, drop_path: float, attention_dropout: float, activation: Activation
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = DroppedAttention(width=width, heads=heads, dropout=attention_dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation)
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(self.norm1(x))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm2(x + self.drop_path(self.attend(x)))
        return x + self.drop_path(self.mlp(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend, after=self.norm2), Branch("mlp", self.mlp)


class SequencePooling(nn.Module):
    """The mean of the tokens, each weighted by the softmax of its score: N×T×width to N×width."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).softmax(dim=1)
        return (weights.transpose(1, 2).to(x.dtype) @ x).squeeze(1)


@models.register(
    "cct_14_7x2_224", help="compact convolutional transformer, 14 layers", image_size=224, convolutions=2,
    kernel_size=7, stride=2, width=384, depth=14, heads=6, mlp_ratio=3.0,
)  # fmt: skip
@models.register("cct.arg", help="paper 3's compact convolutional transformer (CCT-7/3x1)", papers=("arg",))
@models.register("cct_7_3x1_32", help="compact convolutional transformer, 7 layers")
class CompactTransformer(nn.Module):
    """Compact convolutional transformer: N×3×image_size×image_size to N×num_classes.

    The tokenizer has `convolutions` of `kernel_size` and `stride`, and each is followed by pooling to half the size:
    CCT-7/3x1 makes 16×16 tokens of 32 pixels, CCT-14/7x2 14×14 of 224. `drop_path` is the rate of the last block;
    earlier blocks drop linearly less. `activation` None is as published: ReLU in the tokenizer, GELU in MLPs.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        convolutions: int = 1,
        kernel_size: int = 3,
        stride: int = 1,
        width: int = 256,
        depth: int = 7,
        heads: int = 4,
        mlp_ratio: float = 2.0,
        drop_path: float = 0.1,
        attention_dropout: float = 0.1,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        require_positive(image_size=image_size, convolutions=convolutions, kernel_size=kernel_size, stride=stride)
        require_positive(depth=depth)
        require_heads(width, heads)
        hidden = require_hidden(width, mlp_ratio)
        require_rate(drop_path=drop_path, attention_dropout=attention_dropout)
        edge = grid_of(image_size, convolutions=convolutions, kernel_size=kernel_size, stride=stride)
        if edge < 2:
            raise UserError(f"image_size {image_size} is too small: {convolutions} convolutions leave a single token")
        self.num_classes, self.image_size = num_classes, image_size
        self.tokenizer = Tokenizer(
            convolutions=convolutions, kernel_size=kernel_size, stride=stride, width=width,
            activation=activation or "relu",
        )  # fmt: skip
        self.pos_embed = nn.Parameter(torch.zeros(1, edge**2, width))
        self.blocks = nn.ModuleList(
            Block(
                width=width, heads=heads, hidden=hidden, drop_path=rate, attention_dropout=attention_dropout,
                activation=activation or "gelu",
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.pool = SequencePooling(width=width)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.pos_embed, std=0.2)  # ten times ViT's, as its authors have it
        for module in self.tokenizer.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokenizer(x) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(self.norm(x)))
