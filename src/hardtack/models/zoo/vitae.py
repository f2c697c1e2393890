"""ViTAE, "vision transformer advanced by exploring intrinsic inductive bias" (Xu et al. 2021).

Reduction cells shrink the image: dilated convolutions of several reaches side by side (a pyramid), attention over
what they found and a plain convolutional branch next to it. Normal cells are ViT blocks with a convolutional branch
in parallel to attention. There are no positions and no class token, so that images of any size go in. Attention in
the reduction cells is a Performer's: random features stand for the softmax and no token-by-token map ever exists.

Cells and widths are those of the authors' code, without its dropout of 0.1 in the reduction cells. That code's
ViTAE-S has 24.01 M parameters at 1000 classes and 23.62 M without the head; the paper prints 23.6 M. Paper 3 does not
say which form it took, and no form has its 23.18 M at 10 classes. The code's first release, whose reduction cells are
narrower, has them at 1000 classes (23,187,432): that form is `vitae.arg`, with 22,806,282 parameters at 10 classes
and, at 32 pixels, only 2×2 tokens.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

import torch
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
    padding_for,
    ramp,
    require_heads,
    require_hidden,
    require_multiple,
    require_positive,
    require_rate,
    start_small,
)

KERNELS = (7, 3, 3)
DILATIONS = ((1, 2, 3, 4), (1, 2, 3), (1, 2))
EMBEDDING = 64
"""Channels of each dilated convolution, and of the plain branch, in the first two reduction cells."""


def as_images(x: Tensor) -> Tensor:
    """N×H×W×C to N×C×H×W."""
    return x.permute(0, 3, 1, 2)


class Pyramid(nn.Module):
    """Convolutions of several dilations side by side: N×H×W×inputs to N×(H/stride)×(W/stride)×(dilations·width)."""

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        kernel: int,
        stride: int,
        dilations: tuple[int, ...],
        activation: Activation | None,
    ) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(
                inputs, width, kernel, stride=stride, dilation=dilation,
                padding=padding_for(kernel, stride=stride, dilation=dilation),
            )
            for dilation in dilations
        )  # fmt: skip
        self.act = activate(activation or "gelu")

    def forward(self, x: Tensor) -> Tensor:
        x = as_images(x)
        return self.act(torch.cat([convolution(x) for convolution in self.convolutions], dim=1)).permute(0, 2, 3, 1)


class Performer(nn.Module):
    """Attention by random features (Choromanski et al. 2021): N×T×inputs and values N×T×width to N×T×width.

    exp(q·k) becomes φ(q)·φ(k) with φ(x) = exp(Wx − |x|²/2)/√m, so that sums over keys are taken once for all
    queries. W, m×width with orthogonal rows, is drawn when the network is made and saved with its weights.
    """

    features: Tensor

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.qk = nn.Linear(inputs, 2 * width)
        self.proj = nn.Linear(width, width)
        half = width // 2
        self.register_buffer("features", nn.init.orthogonal_(torch.empty(half, width)) * math.sqrt(half))

    def kernel(self, x: Tensor) -> Tensor:
        """φ(x): N×T×width to N×T×m."""
        features = self.features.to(x.dtype)
        return torch.exp(x @ features.T - x.square().sum(-1, keepdim=True) / 2) / math.sqrt(len(features))

    def forward(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self.qk(x).chunk(2, dim=-1)
        exact = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(
            "cpu" if x.is_meta else x.device.type, enabled=False
        ):  # exponentials of halves would be coarse or infinite
            q, k = self.kernel(q.to(exact)), self.kernel(k.to(exact))
            total = q @ k.sum(1).unsqueeze(2)
            out = q @ (k.transpose(1, 2) @ v.to(exact)) / (total + 1e-8)
        return self.proj(out.to(v.dtype))


class ReductionCell(nn.Module):
    """Pyramid, attention with a convolutional branch beside it, MLP: N×H×W×inputs to N×(H/stride)×(W/stride)×width.

    The values of attention take the place of a residual, since the tokens change their number and width.
    """

    channels_last: ClassVar[bool] = True

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        kernel: int,
        stride: int,
        dilations: tuple[int, ...],
        activation: Activation | None,
    ) -> None:
        super().__init__()
        self.pyramid = Pyramid(
            inputs, EMBEDDING, kernel=kernel, stride=stride, dilations=dilations, activation=activation
        )
        found = EMBEDDING * len(dilations)
        self.norm1 = nn.LayerNorm(found)
        self.value = nn.Linear(found, width)
        self.performer = Performer(found, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width=width, hidden=width, activation=activation or "gelu")
        strides = [2 if stride >= 2 ** (i + 1) else 1 for i in range(3)]  # 4 is 2·2·1
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, EMBEDDING, 3, stride=strides[0], padding=1),
            activate(activation or "silu"),
            nn.Conv2d(EMBEDDING, EMBEDDING, 3, stride=strides[1], padding=1),
            nn.BatchNorm2d(EMBEDDING),
            activate(activation or "silu"),
            nn.Conv2d(EMBEDDING, width, 3, stride=strides[2], padding=1),
            activate(activation or "silu"),
        )

    def values(self, x: Tensor) -> Tensor:
        return self.value(self.norm1(self.pyramid(x)))

    def mix(self, x: Tensor) -> Tensor:
        found = self.norm1(self.pyramid(x))
        return self.attend(found, self.value(found)) + self.convolve(x, found)

    def attend(self, found: Tensor, v: Tensor) -> Tensor:
        return self.performer(found.flatten(1, 2), v.flatten(1, 2)).view(v.shape)

    def convolve(self, x: Tensor, found: Tensor) -> Tensor:
        out = self.branch(as_images(x)).permute(0, 2, 3, 1)
        return out[:, : found.shape[1], : found.shape[2]]  # of odd sizes it can keep a row more than the pyramid

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm1(self.pyramid(x))
        v = self.value(found)
        x = v + self.attend(found, v) + self.convolve(x, found)
        return x + self.feed(x)

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention+convolution", self.mix, identity=self.values), Branch("mlp", self.feed)


class NormalCell(nn.Module):
    """Attention and grouped convolutions side by side, then the MLP: N×H×W×width to the same."""

    channels_last: ClassVar[bool] = True

    def __init__(
        self, *, width: int, heads: int, hidden: int, groups: int, drop_path: float, activation: Activation | None
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width=width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation or "gelu")
        self.branch = nn.Sequential(
            nn.Conv2d(width, hidden, 3, padding=1, groups=groups),
            nn.BatchNorm2d(hidden),
            activate(activation or "silu"),
            nn.Conv2d(hidden, width, 3, padding=1, groups=groups),
            nn.BatchNorm2d(width),
            activate(activation or "silu"),
            nn.Conv2d(width, width, 3, padding=1, groups=groups),
            activate(activation or "silu"),
        )
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(self.norm1(x).flatten(1, 2)).view(x.shape)

    def convolve(self, x: Tensor) -> Tensor:
        return self.branch(as_images(x)).permute(0, 2, 3, 1)  # of the stream as it is, not of its norm

    def mix(self, x: Tensor) -> Tensor:
        return self.attend(x) + self.convolve(x)

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attend(x)) + self.drop_path(self.convolve(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention+convolution", self.mix), Branch("mlp", self.feed)


@models.register("vitae_small_224", help="transformer with convolutional branches (ViTAE-S)")
@models.register(
    "vitae.arg", help="closest to paper 3's ViTAE, whose printed 23.18 M it has at 1000 classes (22.80 M at 10)",
    papers=("arg",), cell_widths=(64, 64),
)  # fmt: skip
@models.register(
    "vitae_small_32", help="transformer with convolutional branches (ViTAE-S), 8×8 tokens", reductions=(1, 2, 2)
)
class Vitae(nn.Module):
    """ViTAE: N×3×H×W to N×num_classes, for images of at least as many pixels as `reductions` multiply to.

    Two reduction cells of `cell_widths` and a bare pyramid shrink the image by `reductions`; `depth` normal cells of
    `width` follow, whose convolutions have `groups`. `drop_path` is the rate of the last normal cell; earlier ones
    drop linearly less. `activation` None is as published: GELU in MLPs and pyramids, SiLU in convolutional branches.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        reductions: tuple[int, ...] = (4, 2, 2),
        cell_widths: tuple[int, ...] = (96, 192),
        width: int = 384,
        depth: int = 14,
        heads: int = 6,
        mlp_ratio: float = 3.0,
        groups: int = 96,
        drop_path: float = 0.0,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        require_positive(depth=depth, groups=groups)
        require_heads(width, heads)
        hidden = require_hidden(width, mlp_ratio)
        require_multiple(2, width=width)  # the last pyramid has two dilations
        require_multiple(groups, width=width, hidden=hidden)
        require_rate(drop_path=drop_path)
        if len(cell_widths) != 2 or min(cell_widths) < 2:
            raise UserError(f"cell_widths are the widths of the two reduction cells, at least 2; found {cell_widths}")
        if len(reductions) != 3 or not set(reductions) <= {1, 2, 4, 8}:
            raise UserError(f"reductions are three of 1, 2, 4 and 8, found {reductions}")
        self.num_classes, self.shrinks = num_classes, math.prod(reductions)
        self.cells = nn.ModuleList(
            ReductionCell(
                inputs, outputs, kernel=kernel, stride=stride, dilations=dilations, activation=activation
            )
            for (inputs, outputs), kernel, stride, dilations in zip(
                pairwise((3, *cell_widths)), KERNELS, reductions, DILATIONS, strict=False
            )
        )  # fmt: skip
        self.pyramid = Pyramid(
            cell_widths[-1], width // 2, kernel=KERNELS[-1], stride=reductions[-1], dilations=DILATIONS[-1],
            activation=activation,
        )  # fmt: skip
        self.blocks = nn.ModuleList(
            NormalCell(
                width=width, heads=heads, hidden=hidden, groups=groups, drop_path=rate, activation=activation
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.head = nn.Linear(width, num_classes)
        start_small(self)

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) < self.shrinks:
            raise UserError(f"ViTAE shrinks images by {self.shrinks} here, found {x.shape[2]}×{x.shape[3]} pixels")
        x = x.permute(0, 2, 3, 1)
        for cell in self.cells:
            x = cell(x)
        x = self.pyramid(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))
