"""The two transformers that Wang and Ruan compare in their study of robustness as a Cauchy problem, 32 and 224 pixels.

`cauchy_vit` is a vision transformer; `covit` has 1-D convolutions along the row of tokens where the other has
attention, and is otherwise the same network. Both keep a class token, start it and the positions from N(0, 1), and
pool *all* tokens, the class token among them, as the authors' code does. Tokens stand in reading order behind the
class token, so to the convolutions the last patch of a line and the first of the next are neighbours. Names are those
of the paper's tables (2 for s, m and l, 1 for t). The 32-pixel forms have patches of 4 pixels (8×8 tokens) where the
paper has 16 of 224, and of 8 (4×4 tokens) where it has 32.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    Mlp,
    attend,
    ramp,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
)
from hardtack.models.zoo.vit import PatchEmbedding


class PairedAttention(nn.Module):
    """Multi-head self-attention over N×T×width; queries and keys come from one linear map, values from another."""

    attention: ClassVar[str] = "token"

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.qk = nn.Linear(width, 2 * width)
        self.v = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.qk(x).unflatten(2, (2, self.num_heads, -1)).transpose(1, 3).unbind(2)  # N×heads×T×d
        v = self.v(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class GroupedConvolution(nn.Module):
    """Convolutions along the tokens of N×T×width: each of len(kernels) equal groups of channels has its own.

    Within its group a convolution is full: every channel sees all channels of the group.
    """

    def __init__(self, *, width: int, kernels: tuple[int, ...]) -> None:
        super().__init__()
        group = width // len(kernels)
        # groups of one kernel size that stand side by side are one call
        runs = [(kernel, len(list(run))) for kernel, run in groupby(kernels)]
        self.sizes = [group * count for _, count in runs]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(group * count, group * count, kernel, padding=kernel // 2, groups=count) for kernel, count in runs
        )
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.transpose(1, 2).split(self.sizes, dim=1)
        mixed = [convolution(part) for convolution, part in zip(self.convolutions, parts, strict=True)]
        return self.proj(torch.cat(mixed, dim=1).transpose(1, 2))


class MixerBlock(nn.Module):
    """The mixer, then the MLP, each added to what came in: N×T×width to N×T×width."""

    def __init__(self, mixer: nn.Module, *, width: int, hidden: int, drop_path: float, activation: Activation) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.mixer = mixer
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width=width, hidden=hidden, activation=activation)
        self.drop_path = DropPath(rate=drop_path)

    def mix(self, x: Tensor) -> Tensor:
        return self.mixer(self.norm1(x))

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.mix(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        kind = "attention" if isinstance(self.mixer, PairedAttention) else "convolution"
        return Branch(kind, self.mix), Branch("mlp", self.feed)


class CauchyTransformer(nn.Module):
    """ViT or CoViT of the Cauchy paper: N×3×image_size×image_size to N×num_classes.

    `heads` makes it a ViT, `kernels` a CoViT with one group of channels for each kernel size; one of the two must be
    None. `drop_path`, which the paper leaves at 0, is the rate of the last block; earlier ones drop linearly less.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 512,
        depth: int = 4,
        heads: int | None = None,
        kernels: tuple[int, ...] | None = None,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_positive(depth=depth)
        require_rate(drop_path=drop_path)
        _require_one_mixer(width, heads, kernels)
        hidden = require_hidden(width, mlp_ratio)
        self.num_classes, self.image_size, self.num_prefix_tokens = num_classes, image_size, 1
        patches = require_patches(image_size, patch_size) ** 2
        self.patch_embed = PatchEmbedding(patch_size=patch_size, width=width)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, patches + 1, width))

        def mixer() -> nn.Module:
            if kernels is not None:
                return GroupedConvolution(width=width, kernels=kernels)
            assert heads is not None
            return PairedAttention(width=width, heads=heads)

        self.blocks = nn.ModuleList(
            MixerBlock(mixer(), width=width, hidden=hidden, drop_path=rate, activation=activation)
            for rate in ramp(drop_path, depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(1)))


def _require_one_mixer(width: int, heads: int | None, kernels: tuple[int, ...] | None) -> None:
    if (heads is None) == (kernels is None):
        raise UserError(
            f"give heads (attention) or kernels (convolutions), and null for the other; found {heads=}, {kernels=}"
        )
    if heads is not None:
        require_heads(width, heads)
    if kernels is not None:
        if not kernels or any(kernel < 1 or kernel % 2 == 0 for kernel in kernels):
            raise UserError(f"kernels must be odd, so that there are as many tokens after as before; found {kernels}")
        if width < 1 or width % len(kernels):
            raise UserError(f"width {width} cannot be shared among {len(kernels)} kernels")


# name: (depth, heads, patch at 224 pixels)
_VITS = {
    "s1": (1, 1, 16), "s2": (1, 4, 16), "s3": (4, 1, 16), "s4": (4, 4, 16),
    "m1": (8, 1, 16), "m2": (8, 4, 16), "m3": (8, 4, 32), "l": (12, 8, 32),
    "t1": (4, 1, 16), "t2": (4, 4, 16), "t3": (8, 1, 16), "t4": (8, 4, 16),
}  # fmt: skip
# name: (depth, kernels, patch at 224 pixels)
_COVITS = {
    "s1": (1, (3,), 16), "s2": (1, (3,) * 4, 16), "s3": (4, (3,), 16), "s4": (4, (3,) * 4, 16), "s5": (4, (7,) * 4, 16),
    "m1": (8, (3,), 16), "m2": (8, (1, 3, 5, 7), 16), "m3": (8, (3,) * 4, 16), "m4": (8, (7,) * 4, 16),
    "m5": (8, (3,) * 4, 32), "l1": (12, (3,) * 4 + (5,) * 4, 32), "l2": (16, (3,) * 4 + (5,) * 4, 32),
    "t1": (4, (3,), 16), "t2": (4, (3,) * 4, 16), "t3": (8, (3,), 16), "t4": (8, (3,) * 4, 16),
}  # fmt: skip


def _enter(family: str, help: str, knob: str, table: dict[str, Any]) -> None:
    for name, (depth, mixer, patch) in table.items():
        for image_size, patch_size in ((224, patch), (32, patch // 4)):
            models.register(
                f"{family}_{name}_{image_size}", family=family, help=f"{help}, {name.upper()} of paper 4",
                papers=("cauchy",), image_size=image_size, patch_size=patch_size, depth=depth,
                width=128 if name.startswith("t") else 512, **{knob: mixer},
            )(CauchyTransformer)  # fmt: skip


_enter("cauchy_vit", "vision transformer", "heads", _VITS)
_enter("covit", "transformer with convolutions for attention", "kernels", _COVITS)
