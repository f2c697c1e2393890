"""XCiT, the cross-covariance image transformer (El-Nouby et al. 2021), at 32 and 224 pixels.

Attention mixes channels instead of tokens, a pair of depthwise convolutions mixes neighbouring tokens, and at the end
a class token reads the image in two class-attention blocks. Parameters are named as in timm's `Xcit`, so published
weights load. Debenedetti's thesis (2022) brings networks trained at patch 16 to 32 pixels by setting the strides of
the first stem convolutions to 1: weights stay as they are, and patches shrink to 4 pixels. Here that is the knob
`patch_size` under an unchanged `stem`. XCiT-M12 and -L12 are the thesis's; they have no published weights in timm.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    Mlp,
    activate,
    attend,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
    start_small,
)


class ConvolutionalStem(nn.Module):
    """3×3 convolutions, each of stride 1 or 2 and twice as wide as the one before: N×3×H×W to N×width×h×w."""

    def __init__(self, *, width: int, strides: tuple[int, ...], activation: Activation) -> None:
        super().__init__()
        widths = [3, *(width // 2**power for power in reversed(range(len(strides))))]
        layers: list[nn.Module] = []
        for (inputs, outputs), stride in zip(pairwise(widths), strides, strict=True):
            convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
            layers += [nn.Sequential(convolution, nn.BatchNorm2d(outputs)), activate(activation)]
        self.proj = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class FourierPositions(nn.Module):
    """Add to N×H×W×width a linear map of sines and cosines of the row and of the column, for any H and W.

    The rows 1 … H are spread over one turn, 2π, and divided by wavelengths that grow geometrically to `temperature`;
    the columns likewise. Of the 2·`hidden` waves of a place the first half belongs to its row.
    """

    def __init__(self, *, width: int, hidden: int = 32, temperature: float = 10_000.0) -> None:
        super().__init__()
        self.hidden, self.temperature = hidden, temperature
        self.token_projection = nn.Conv2d(2 * hidden, width, kernel_size=1)

    def waves(self, length: int, device: torch.device) -> Tensor:
        """length×hidden: sine and cosine in turn, of one wavelength after another."""
        places = torch.arange(1, length + 1, dtype=torch.float32, device=device) / (length + 1e-6) * (2 * math.pi)
        powers = torch.arange(0, self.hidden, 2, dtype=torch.float32, device=device) / self.hidden
        angles = places[:, None] / self.temperature**powers
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        # the projection is linear, so rows and columns go through it apart: H + W places instead of H·W
        projection = self.token_projection
        of_rows, of_columns = projection.weight.flatten(1).chunk(2, dim=1)
        rows = self.waves(x.shape[1], x.device).to(of_rows.dtype)
        columns = self.waves(x.shape[2], x.device).to(of_rows.dtype)
        return x + (F.linear(rows, of_rows)[:, None] + F.linear(columns, of_columns, projection.bias))


class XCA(nn.Module):
    """Cross-covariance attention over N×T×width: in each head every channel attends to the head's channels.

    Queries and keys have length 1 *along the tokens*, so a score is a correlation, times a learned temperature.
    """

    attention: ClassVar[str] = "channel"

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).transpose(1, 3).unbind(2)  # N×heads×T×d
        q, k = F.normalize(q, dim=-2), F.normalize(k, dim=-2)
        weights = (q.transpose(-2, -1) @ k * self.temperature).softmax(dim=-1)  # N×heads×d×d
        return self.proj((v @ weights.to(v.dtype).transpose(-2, -1)).transpose(1, 2).flatten(2))


class LocalPatchInteraction(nn.Module):
    """Two depthwise 3×3 convolutions over the token grid: N×H×W×width to the same."""

    def __init__(self, *, width: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        self.act = activate(activation)
        self.bn = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.bn(self.act(self.conv1(x.permute(0, 3, 1, 2))))).permute(0, 2, 3, 1)


class XCABlock(nn.Module):
    """Channel attention, local interaction, MLP, each scaled and added: N×H×W×width to the same."""

    channels_last: ClassVar[bool] = True

    def __init__(
        self, *, width: int, heads: int, hidden: int, eta: float, drop_path: float, activation: Activation
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = XCA(width=width, heads=heads)
        self.norm3 = nn.LayerNorm(width, eps=1e-6)  # 3 comes before 2: published weights are numbered so
        self.local_mp = LocalPatchInteraction(width=width, activation=activation)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation)
        self.gamma1 = nn.Parameter(torch.full((width,), eta))
        self.gamma3 = nn.Parameter(torch.full((width,), eta))
        self.gamma2 = nn.Parameter(torch.full((width,), eta))
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.gamma1 * self.attn(self.norm1(x).flatten(1, 2)).unflatten(1, x.shape[1:3])

    def interact(self, x: Tensor) -> Tensor:
        return self.gamma3 * self.local_mp(self.norm3(x))

    def feed(self, x: Tensor) -> Tensor:
        return self.gamma2 * self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attend(x))
        x = x + self.drop_path(self.interact(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend), Branch("convolution", self.interact), Branch("mlp", self.feed)


class ClassAttention(nn.Module):
    """The class token, first of N×(1+T)×width, attends to all tokens and itself: N×1×width."""

    attention: ClassVar[str] = "class"

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = (self.num_heads, -1)
        q = self.q(x[:, :1]).unflatten(2, heads).transpose(1, 2)  # N×heads×1×d
        k = self.k(x).unflatten(2, heads).transpose(1, 2)  # N×heads×(1+T)×d
        v = self.v(x).unflatten(2, heads).transpose(1, 2)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class ClassAttentionBlock(nn.Module):
    """Class attention and an MLP for the class token: N×(1+T)×width to the same.

    As the authors trained it, quirks included: the tokens that only look on are not left alone. The first step adds
    their normalised selves to them, the second doubles them; and the second step's shortcut starts from the
    *normalised* stream, with `tokens_norm` for all tokens, without it for the class token only.
    """

    def __init__(
        self, *, width: int, heads: int, hidden: int, eta: float, tokens_norm: bool, activation: Activation
    ) -> None:
        super().__init__()
        self.tokens_norm = tokens_norm
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = ClassAttention(width=width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation)
        self.gamma1 = nn.Parameter(torch.full((width,), eta))
        self.gamma2 = nn.Parameter(torch.full((width,), eta))

    def attend(self, x: Tensor) -> Tensor:
        x = self.norm1(x)
        return self.gamma1 * torch.cat([self.attn(x), x[:, 1:]], dim=1)

    def settle(self, x: Tensor) -> Tensor:
        return self.norm2(x) if self.tokens_norm else torch.cat([self.norm2(x[:, :1]), x[:, 1:]], dim=1)

    def feed(self, settled: Tensor) -> Tensor:
        return torch.cat([self.gamma2 * self.mlp(settled[:, :1]), settled[:, 1:]], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        settled = self.settle(x + self.attend(x))
        return settled + self.feed(settled)

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend), Branch("mlp", lambda x: self.feed(self.settle(x)), self.settle)


def read_by_class(x: Tensor, token: Tensor, blocks: nn.ModuleList) -> Tensor:
    """What a class token, 1×1×width, has read of N×H×W×width after class-attention blocks: N×width."""
    x = torch.cat([token.expand(x.shape[0], -1, -1), x.flatten(1, 2)], dim=1)
    for block in blocks:
        x = block(x)
    return x[:, 0]


class Xcit(nn.Module):
    """Cross-covariance image transformer: N×3×H×W to N×num_classes, H and W multiples of `patch_size`.

    `stem` says how many stem convolutions there are, 4 for 16 and 3 for 8: what the weights were trained with. A
    `patch_size` below it takes away strides from the front. `eta` is the start value of the branch scales and
    `drop_path` the rate of all blocks alike except the `class_depth` class-attention blocks, which drop nothing and
    whose quirk is `tokens_norm`.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        patch_size: int = 4,
        stem: int = 16,
        width: int = 128,
        depth: int = 12,
        class_depth: int = 2,
        heads: int = 4,
        mlp_ratio: float = 4.0,
        eta: float = 1.0,
        tokens_norm: bool = True,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_positive(depth=depth, class_depth=class_depth)
        require_heads(width, heads)
        require_rate(drop_path=drop_path)
        strides = _strides(patch_size, stem)
        if width % (stem // 2):
            raise UserError(f"the stem cannot double its width up to {width}; take a multiple of {stem // 2}")
        self.num_classes, self.patch_size = num_classes, patch_size
        self.patch_embed = ConvolutionalStem(width=width, strides=strides, activation=activation)
        self.pos_embed = FourierPositions(width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        common: dict[str, Any] = {"width": width, "heads": heads, "hidden": require_hidden(width, mlp_ratio)}
        common |= {"eta": eta, "activation": activation}
        self.blocks = nn.ModuleList(XCABlock(drop_path=drop_path, **common) for _ in range(depth))
        self.cls_attn_blocks = nn.ModuleList(
            ClassAttentionBlock(tokens_norm=tokens_norm, **common) for _ in range(class_depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        start_small(self)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        for edge in x.shape[2:]:
            require_patches(edge, self.patch_size)
        x = self.pos_embed(self.patch_embed(x).permute(0, 2, 3, 1))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(read_by_class(x, self.cls_token, self.cls_attn_blocks)))


def _strides(patch_size: int, stem: int) -> tuple[int, ...]:
    """Stem 16: patch 16 is (2, 2, 2, 2), patch 8 is (1, 2, 2, 2), patch 4 is (1, 1, 2, 2)."""
    if stem not in (8, 16):
        raise UserError(f"stem must be 16 (four convolutions) or 8 (three), found {stem}")
    sizes = [size for size in (2, 4, 8, 16) if size <= stem]
    if patch_size not in sizes:
        raise UserError(f"patch_size under stem {stem} must be one of {', '.join(map(str, sizes))}, found {patch_size}")
    halvings = patch_size.bit_length() - 1
    return (1,) * (stem.bit_length() - 1 - halvings) + (2,) * halvings


def _enter(size: str, *, width: int, heads: int, tokens_norm: bool, in_timm: bool) -> None:
    for patch, stem, pixels in ((4, 16, 32), (16, 16, 224), (8, 8, 224)):
        if patch == 8 and not in_timm:
            continue
        models.register(
            f"xcit_{size}_12_patch{patch}_{pixels}", help=f"cross-covariance image transformer, {size}",
            papers=("xcit",), published=f"xcit_{size}_12_p{stem}_224" if in_timm else "", patch_size=patch, stem=stem,
            width=width, heads=heads, tokens_norm=tokens_norm,
        )(Xcit)  # fmt: skip


# the networks with twelve blocks
_enter("nano", width=128, heads=4, tokens_norm=False, in_timm=True)
_enter("small", width=384, heads=8, tokens_norm=True, in_timm=True)
_enter("medium", width=512, heads=8, tokens_norm=True, in_timm=False)
_enter("large", width=768, heads=16, tokens_norm=True, in_timm=False)
