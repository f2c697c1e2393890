"""PVTv2 (Wang et al. 2022): a pyramid of transformers whose keys come from a smaller map.

timm's network. `patch_size` is the stride of its 7×7 stem, which paper 3 varies (4, 2, 1) with the kernel kept.
`linear` pools the keys to 7×7 whatever the map, as paper 3's does; without it they are a strided convolution of
the map by `reductions`. At 32 pixels the published ratios 8, 4, 2, 1 would leave one to four keys: the 32-pixel
configurations halve the image in the stem and the ratios after it, which leaves sixteen.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm, set_activation
from hardtack.models.zoo.layers import Activation, require_heads, require_positive, require_stages

STEM_KERNEL = 7
_SMALL: dict[str, Any] = {"patch_size": 2, "reductions": (4, 2, 1, 1)}
_B1: dict[str, Any] = {"widths": (64, 128, 320, 512)}


@models.register("pvtv2_b2_224", help="pyramid, keys reduced, B2", published="pvt_v2_b2", depths=(3, 4, 6, 3), **_B1)
@models.register("pvtv2_b1_224", help="pyramid, keys reduced, B1", published="pvt_v2_b1", **_B1)
@models.register("pvtv2_b0_224", help="pyramid, keys reduced, B0", published="pvt_v2_b0")
@models.register("pvtv2.arg", help="paper 3's PVTv2: B1, keys pooled", papers=("arg",), linear=True, **_B1)
@models.register("pvtv2_b1_32", help="pyramid, keys reduced, B1, for small images", **_B1, **_SMALL)
@models.register("pvtv2_b0_32", help="pyramid, keys reduced, B0, for small images", **_SMALL)
def pvtv2(
    *,
    num_classes: int = 10,
    patch_size: int = 4,
    widths: tuple[int, ...] = (32, 64, 160, 256),
    depths: tuple[int, ...] = (2, 2, 2, 2),
    heads: tuple[int, ...] = (1, 2, 5, 8),
    mlp_ratios: tuple[float, ...] = (8.0, 8.0, 4.0, 4.0),
    reductions: tuple[int, ...] = (8, 4, 2, 1),
    linear: bool = False,
    drop_path: float = 0.0,
    activation: Activation | None = None,
) -> nn.Module:
    """PVTv2: N×3×H×W to N×num_classes, any size from patch_size · reductions[0] on.

    `activation` None is as published: GELU, and with `linear` ReLU behind the first layer of each MLP.
    """
    require_stages(widths=widths, depths=depths, heads=heads, mlp_ratios=mlp_ratios, reductions=reductions)
    require_positive(patch_size=patch_size, depths=min(depths), reductions=min(reductions), mlp_ratios=min(mlp_ratios))
    for width, count in zip(widths, heads, strict=True):
        require_heads(width, count)
    if patch_size >= STEM_KERNEL:
        raise UserError(f"patch_size is the stride of a {STEM_KERNEL}×{STEM_KERNEL} stem: take less, not {patch_size}")
    model: Any = from_timm(
        "pvt_v2_b0", num_classes=num_classes, drop_path=drop_path, embed_dims=widths, depths=depths, num_heads=heads,
        mlp_ratios=mlp_ratios, sr_ratios=reductions, linear=linear,
    )  # fmt: skip
    model.patch_embed.proj.stride = (patch_size, patch_size)
    set_activation(model, activation)
    return model
