"""CaiT (Touvron et al. 2021): many blocks without a class token, then two in which only the class token attends.

timm's network: heads talk before and after the softmax, and each branch has a scale per channel. Paper 2's
CaiT-S12 is the published S24 with half its blocks and with scales that start at 1 instead of nearly 0.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, require_heads, require_hidden, require_patches, require_positive

_LARGE: dict[str, Any] = {"image_size": 224, "patch_size": 16}


@models.register(
    "cait_xxs24_patch16_224", help="class attention, XXS24", published="cait_xxs24_224", width=192, depth=24, heads=4,
    layer_scale=1e-5, **_LARGE,
)  # fmt: skip
@models.register("cait_s12_patch16_224", help="paper 2's CaiT-S12", papers=("xcit",), **_LARGE)
@models.register("cait_s12_patch4_32", help="class attention, S12, for small images", papers=("xcit",))
def cait(
    *,
    num_classes: int = 10,
    image_size: int = 32,
    patch_size: int = 4,
    width: int = 384,
    depth: int = 12,
    class_depth: int = 2,
    heads: int = 8,
    mlp_ratio: float = 4.0,
    layer_scale: float = 1.0,
    drop_path: float = 0.0,
    activation: Activation = "gelu",
) -> nn.Module:
    """CaiT: N×3×image_size×image_size to N×num_classes; `drop_path` is the same in all `depth` patch blocks."""
    require_positive(depth=depth, class_depth=class_depth)
    require_heads(width, heads)
    require_hidden(width, mlp_ratio)
    require_patches(image_size, patch_size)
    return from_timm(
        "cait_xxs24_224", num_classes=num_classes, image_size=image_size, drop_path=drop_path, activation=activation,
        patch_size=patch_size, embed_dim=width, depth=depth, depth_token_only=class_depth, num_heads=heads,
        mlp_ratio=mlp_ratio, init_values=layer_scale,
    )  # fmt: skip
