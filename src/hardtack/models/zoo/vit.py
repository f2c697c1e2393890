"""A compact vision transformer for small images (Dosovitskiy et al. 2021), in one file.

Pre-norm blocks, learned positions, mean pooling. Parameters are named as in timm's `VisionTransformer`, so
that weights travel both ways and whoever knows one knows the other. Without a class token 32-pixel images
cut into 4-pixel patches make exactly 64 tokens, a size that GPU kernels like.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.errors import UserError
from hardtack.registry import models

SHORT = 128
"""Up to this many tokens compiled attention is written out; at 64 tokens it is the faster way on an H200."""


class PatchEmbedding(nn.Module):
    """Cut N×3×H×W into patches and map each linearly to a token: N×T×width."""

    def __init__(self, *, patch_size: int, width: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(3, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, x: Tensor) -> Tensor:
        # The same sum as self.proj(x), written as one matrix product: its input gradient, which every
        # attack step needs, is then a plain matrix product too instead of a strided deconvolution.
        size = self.patch_size
        n, channels, height, width = x.shape
        x = x.reshape(n, channels, height // size, size, width // size, size)
        patches = x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Attention(nn.Module):
    """Multi-head self-attention over N×T×width."""

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if torch.compiler.is_compiling() and tokens <= SHORT:
            # two matrix products with a fused softmax between them beat the flash kernels here, forward and back
            weights = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
            x = weights.to(v.dtype) @ v
        else:
            x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(n, tokens, width))


class Mlp(nn.Module):
    def __init__(self, *, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    def __init__(self, *, width: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Drop the whole residual branch of an image with probability `rate`, in training only."""

    def __init__(self, *, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * (mask / keep)


class Block(nn.Module):
    """Attention, then the MLP, each added to what came in: N×T×width to N×T×width."""

    def __init__(self, *, width: int, heads: int, hidden: int, drop_path: float, layer_scale: float | None) -> None:
        super().__init__()

        def scale() -> nn.Module:
            return nn.Identity() if layer_scale is None else LayerScale(width=width, start=layer_scale)

        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width=width, heads=heads)
        self.ls1 = scale()
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width=width, hidden=hidden)
        self.ls2 = scale()
        self.drop_path = DropPath(rate=drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


_SMALL_IMAGES = {"image_size": 32, "patch_size": 4}


@models.register(
    "vit_digits",
    help="vision transformer for quick CPU runs",
    image_size=32,
    patch_size=8,
    width=64,
    depth=4,
    heads=4,
    initial_std=None,
)
@models.register("vit_base_patch4_32", help="vision transformer, base", **_SMALL_IMAGES, width=768, depth=12, heads=12)
@models.register("vit_small_patch4_32", help="vision transformer, small", **_SMALL_IMAGES, width=384, depth=12, heads=6)
@models.register("vit_tiny_patch4_32", help="vision transformer, tiny", **_SMALL_IMAGES, width=192, depth=12, heads=3)
class VisionTransformer(nn.Module):
    """Vision transformer: N×3×image_size×image_size to N×num_classes.

    `drop_path` is the rate of the last block; earlier blocks drop linearly less. `layer_scale` is the start
    value of the per-channel branch scales, None for none. `initial_std` None takes Xavier's rule instead: at
    small widths 0.02 is so little that training is slow to start.
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
        initial_std: float | None = 0.02,
    ) -> None:
        super().__init__()
        _check(image_size=image_size, patch_size=patch_size, width=width, depth=depth, heads=heads)
        if not 0.0 <= drop_path < 1.0:
            raise UserError(f"drop_path must lie in [0, 1), found {drop_path}")
        self.num_classes, self.image_size = num_classes, image_size
        self.num_prefix_tokens = int(class_token)
        tokens = (image_size // patch_size) ** 2 + self.num_prefix_tokens
        self.patch_embed = PatchEmbedding(patch_size=patch_size, width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        self.blocks = nn.ModuleList(
            Block(
                width=width,
                heads=heads,
                hidden=int(width * mlp_ratio),
                drop_path=drop_path * index / max(depth - 1, 1),
                layer_scale=layer_scale,
            )
            for index in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
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


def _check(*, image_size: int, patch_size: int, width: int, depth: int, heads: int) -> None:
    sizes = {
        "image_size": image_size,
        "patch_size": patch_size,
        "width": width,
        "depth": depth,
        "heads": heads,
    }
    for name, value in sizes.items():
        if value < 1:
            raise UserError(f"{name} must be at least 1, found {value}")
    if image_size % patch_size:
        raise UserError(f"image_size {image_size} cannot be cut into patches of {patch_size} pixels")
    if width % heads:
        raise UserError(f"width {width} cannot be shared among {heads} heads; take a multiple of {heads}")
