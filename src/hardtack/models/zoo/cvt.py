"""The convolutional vision transformer (CvT, Wu et al. 2021): convolutions embed the tokens and project them.

Three stages; each begins with a strided convolution, and its queries, keys and values are made by depthwise 3×3
convolutions, for keys and values with stride 2. There are no positions to learn, so that images of any size go in.
The defaults are the authors': a class token in the last stage, scores divided by the root of the whole width, not of
a head's. They use a sigmoid approximation of GELU; here it is GELU itself. Paper 3's model is another
implementation's (lucidrains'): no class token, one convolution for keys and values, no biases, no last norm, and a
padding of half the stem's kernel.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.layers import (
    Activation,
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

KV_STRIDE = 2


class Embedding(nn.Module):
    """A strided convolution and a norm: N×C×H×W to N×(H/stride)×(W/stride)×width."""

    def __init__(self, inputs: int, width: int, *, kernel: int, stride: int, padding: int | None = None) -> None:
        super().__init__()
        padding = padding_for(kernel, stride=stride) if padding is None else padding
        self.proj = nn.Conv2d(inputs, width, kernel, stride=stride, padding=padding)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.proj(x).permute(0, 2, 3, 1))


def neighbourhood(width: int, *, stride: int) -> nn.Module:
    """Depthwise 3×3 convolution and batch norm, on N×width×H×W."""
    convolution = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=width, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width))


class ConvolutionalAttention(nn.Module):
    """Attention whose queries, keys and values are convolved first, keys and values with stride 2.

    It takes N×H×W×width, or N×(1+H·H)×width where a class token, which is not convolved, comes before a square grid,
    and gives back the same shape. With `shared_kv` one convolution serves keys and values.
    """

    attention: ClassVar[str] = "reduced"

    def __init__(self, *, width: int, heads: int, shared_kv: bool, qkv_bias: bool, width_scale: bool) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (width if width_scale else width // heads) ** -0.5
        self.near_q = neighbourhood(width, stride=1)
        self.near_k = neighbourhood(width, stride=KV_STRIDE)
        self.near_v = None if shared_kv else neighbourhood(width, stride=KV_STRIDE)
        self.q = nn.Linear(width, width, bias=qkv_bias)
        self.k = nn.Linear(width, width, bias=qkv_bias)
        self.v = nn.Linear(width, width, bias=qkv_bias)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        first, grid = None, x
        if x.ndim == 3:
            side = math.isqrt(x.shape[1] - 1)
            first, grid = x[:, :1], x[:, 1:].unflatten(1, (side, side))
        images = grid.permute(0, 3, 1, 2)

        def tokens(near: Tensor) -> Tensor:
            near = near.flatten(2).transpose(1, 2)
            return near if first is None else torch.cat([first, near], dim=1)

        def split(projected: Tensor) -> Tensor:
            return projected.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

        for_q, for_k = tokens(self.near_q(images)), tokens(self.near_k(images))
        for_v = for_k if self.near_v is None else tokens(self.near_v(images))
        out = attend(split(self.q(for_q)), split(self.k(for_k)), split(self.v(for_v)), scale=self.scale)
        return self.proj(out.transpose(1, 2).flatten(2)).reshape(x.shape)


class MapBlock(Block):
    """ViT's block on N×H×W×width, or on N×(1+H·H)×width with a class token."""

    channels_last: ClassVar[bool] = True


@models.register("cvt_13_224", help="convolutional vision transformer, 13 blocks")
@models.register(
    "cvt.arg", help="paper 3's convolutional vision transformer; only 2×2 tokens in the last stage at 32 pixels",
    papers=("arg",), stem_kernel=3, stem_padding=1, class_token=False, shared_kv=True, qkv_bias=False,
    width_scale=False, final_norm=False,
)  # fmt: skip
@models.register(
    "cvt_13_32", help="convolutional vision transformer, 13 blocks, 16×16 tokens first", stem_kernel=3,
    strides=(2, 2, 2),
)  # fmt: skip
class ConvolutionalTransformer(nn.Module):
    """Convolutional vision transformer: N×3×H×W to N×num_classes; with `class_token` the images must be square.

    Stage `i` shrinks the image by `strides[i]`; the kernel is `stem_kernel` in the first and 3 in the others. Around
    the image lie `stem_padding` zeros, None for as many as make its size a multiple of the stride.
    `drop_path` is the rate of the last block; earlier blocks drop linearly less. `width_scale` divides the scores by
    the root of the width instead of that of the head's width.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        stem_kernel: int = 7,
        stem_padding: int | None = None,
        strides: tuple[int, ...] = (4, 2, 2),
        widths: tuple[int, ...] = (64, 192, 384),
        depths: tuple[int, ...] = (1, 2, 10),
        heads: tuple[int, ...] = (1, 3, 6),
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        class_token: bool = True,
        activation: Activation = "gelu",
        shared_kv: bool = False,
        qkv_bias: bool = True,
        width_scale: bool = True,
        final_norm: bool = True,
    ) -> None:
        super().__init__()
        stages = require_stages(strides=strides, widths=widths, depths=depths, heads=heads)
        require_positive(stem_kernel=stem_kernel, strides=min(strides), depths=min(depths))
        if stem_padding is not None and not 0 <= stem_padding <= stem_kernel // 2:
            raise UserError(f"stem_padding must lie between 0 and half the stem's kernel, found {stem_padding}")
        require_rate(drop_path=drop_path)
        for width, count in zip(widths, heads, strict=True):
            require_heads(width, count)
            require_hidden(width, mlp_ratio)
        self.num_classes, self.num_prefix_tokens = num_classes, int(class_token)
        kernels, inputs = [stem_kernel] + [3] * (stages - 1), [3, *widths]
        paddings = [stem_padding] + [None] * (stages - 1)
        self.embeddings = nn.ModuleList(
            Embedding(inputs[i], widths[i], kernel=kernels[i], stride=strides[i], padding=paddings[i])
            for i in range(stages)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, widths[-1])) if class_token else None
        rates = iter(ramp(drop_path, sum(depths)))
        self.stages = nn.ModuleList(
            nn.Sequential(
                *(
                    MapBlock(
                        ConvolutionalAttention(
                            width=widths[i], heads=heads[i], shared_kv=shared_kv, qkv_bias=qkv_bias,
                            width_scale=width_scale,
                        ),
                        Mlp(width=widths[i], hidden=int(widths[i] * mlp_ratio), activation=activation),
                        width=widths[i], drop_path=next(rates), eps=1e-5,
                    )
                    for _ in range(depths[i])
                )
            )
            for i in range(stages)
        )  # fmt: skip
        self.norm = nn.LayerNorm(widths[-1]) if final_norm else nn.Identity()
        self.head = nn.Linear(widths[-1], num_classes)
        start_small(self)
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if self.cls_token is not None and x.shape[-2] != x.shape[-1]:
            raise UserError(f"CvT with a class token takes square images, found {x.shape[-2]}×{x.shape[-1]}")
        for embed, stage in zip(self.embeddings[:-1], self.stages[:-1], strict=True):
            x = stage(embed(x)).permute(0, 3, 1, 2)
        x = self.embeddings[-1](x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x.flatten(1, 2)], dim=1)
        x = self.stages[-1](x)
        if self.cls_token is not None:
            return self.head(self.norm(x[:, 0]))
        return self.head(self.norm(x).mean((1, 2)))
