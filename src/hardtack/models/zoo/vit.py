"""The vision transformer (Dosovitskiy et al. 2021; as DeiT, Touvron et al. 2021), at 32 and 224 pixels.

Pre-norm blocks, learned positions, mean pooling or a class token. Parameters are named as in timm's
`VisionTransformer`, so that weights travel both ways and whoever knows one knows the other. Without a class token
32-pixel images cut into 4-pixel patches make exactly 64 tokens, a size that GPU kernels like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    LayerScale,
    Mlp,
    PatchConvolution,
    activate,
    ramp,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
)


class PatchEmbedding(nn.Module):
    """Cut N×3×H×W into patches and map each linearly to a token: N×T×width."""

    def __init__(self, *, patch_size: int, width: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = PatchConvolution(3, width, size=patch_size)

    def forward(self, x: Tensor) -> Tensor:
        # The same sum as self.proj(x), written as one matrix product: its input gradient, which every
        # attack step needs, is then a plain matrix product too instead of a strided deconvolution.
        size = self.patch_size
        n, channels, height, width = x.shape
        x = x.reshape(n, channels, height // size, size, width // size, size)
        patches = x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Block(nn.Module):
    """Attention, then the MLP, each added to what came in: N×T×width to N×T×width."""

    def __init__(
        self,
        attention: nn.Module,
        mlp: nn.Module,
        *,
        width: int,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()

        def scale() -> nn.Module:
            return nn.Identity() if layer_scale is None else LayerScale(width=width, start=layer_scale)

        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attn = attention
        self.ls1 = scale()
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = mlp
        self.ls2 = scale()
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        return self.ls1(self.attn(self.norm1(x)))

    def feed(self, x: Tensor) -> Tensor:
        return self.ls2(self.mlp(self.norm2(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attend(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend), Branch("mlp", self.feed)


def _sized(size: int, patch: int, letter: str) -> Callable[[Any], Any]:
    """Register ViT and DeiT of one size: `letter` is tiny, small or base."""
    width, heads = {"tiny": (192, 3), "small": (384, 6), "base": (768, 12)}[letter]
    presets: dict[str, Any] = {"image_size": size, "patch_size": patch, "width": width, "depth": 12, "heads": heads}
    token: dict[str, Any] = {"class_token": True}

    def enter(make: Any) -> Any:
        name, said = f"{letter}_patch{patch}_{size}", f", {letter}"
        pooled: dict[str, Any] = token if size == 224 else {}
        vit, deit = f"vit_{name}", f"deit_{name}"
        models.register(
            vit, help=f"vision transformer{said}", papers=("rspc",), published=vit if size == 224 else "",
            **presets, **pooled,
        )(make)  # fmt: skip
        models.register(
            deit, family="deit", help=f"vision transformer with a class token{said}", papers=("rspc", "xcit"),
            published=deit if size == 224 else "", **presets, **token,
        )(make)  # fmt: skip
        return make

    return enter


@_sized(224, 16, "base")
@_sized(224, 16, "small")
@_sized(224, 16, "tiny")
@_sized(32, 4, "base")
@_sized(32, 4, "small")
@_sized(32, 4, "tiny")
@models.register(
    "vit.arg", help="paper 3's vision transformer", papers=("arg",), width=512, depth=6, heads=8, mlp_ratio=1.0,
    qkv_bias=False, class_token=True, head_hidden=512,
)  # fmt: skip
@models.register(
    "vit_digits", help="vision transformer for quick CPU runs", patch_size=8, width=64, depth=4, heads=4,
    initial_std=None,
)  # fmt: skip
class VisionTransformer(nn.Module):
    """Vision transformer: N×3×image_size×image_size to N×num_classes.

    `drop_path` is the rate of the last block; earlier blocks drop linearly less. `layer_scale` is the start
    value of the per-channel branch scales, None for none. `head_hidden` makes the head an MLP with so many hidden
    units. `initial_std` None takes Xavier's rule instead: at small widths 0.02 is so little that training is slow to
    start.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        class_token: bool = False,
        activation: Activation = "gelu",
        qkv_bias: bool = True,
        head_hidden: int | None = None,
        initial_std: float | None = 0.02,
    ) -> None:
        super().__init__()
        require_positive(depth=depth)
        require_heads(width, heads)
        require_rate(drop_path=drop_path)
        if head_hidden is not None:
            require_positive(head_hidden=head_hidden)
        if initial_std is not None and not initial_std > 0.0:
            raise UserError(f"initial_std must be positive, or null for Xavier's rule; found {initial_std}")
        hidden = require_hidden(width, mlp_ratio)
        self.num_classes, self.image_size = num_classes, image_size
        self.num_prefix_tokens = int(class_token)
        tokens = require_patches(image_size, patch_size) ** 2 + self.num_prefix_tokens
        self.patch_embed = PatchEmbedding(patch_size=patch_size, width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        self.blocks = nn.ModuleList(
            Block(
                Attention(width=width, heads=heads, qkv_bias=qkv_bias),
                Mlp(width=width, hidden=hidden, activation=activation),
                width=width, drop_path=rate, layer_scale=layer_scale,
            )
            for rate in ramp(drop_path, depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head: nn.Module = nn.Linear(width, num_classes)
        if head_hidden is not None:
            first = nn.Linear(width, head_hidden), activate(activation)
            self.head = nn.Sequential(*first, nn.Linear(head_hidden, num_classes))
        self._initialise(initial_std)

    def _initialise(self, initial_std: float | None) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                if initial_std is None:
                    nn.init.xavier_uniform_(module.weight.flatten(1))
                else:
                    nn.init.trunc_normal_(module.weight, std=initial_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls_token is None else x[:, 0])
