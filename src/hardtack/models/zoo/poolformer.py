"""PoolFormer (Yu et al. 2022): a transformer's outline with average pooling where attention would be.

timm's `MetaFormer`, with a stem that can be told: `patch_size` is its stride (4 as published), `stem_kernel` its
kernel (7). Paper 3's count has room for a 3×3 stem at most; its stride is not known and 2 is taken here.
"""

from __future__ import annotations

from torch import nn

from hardtack.base.registry import models
from hardtack.models.zoo.layers import (
    Activation,
    activate,
    padding_for,
    require_positive,
    require_rate,
    require_stages,
)


@models.register("poolformer_s12_224", help="pooling for attention", published="poolformer_s12", patch_size=4)
@models.register("poolformer.arg", help="paper 3's PoolFormer", papers=("arg",), stem_kernel=3)
@models.register("poolformer_s12_32", help="pooling for attention, for small images")
def poolformer(
    *,
    num_classes: int = 10,
    patch_size: int = 2,
    stem_kernel: int = 7,
    widths: tuple[int, ...] = (64, 128, 320, 512),
    depths: tuple[int, ...] = (2, 2, 6, 2),
    drop_path: float = 0.0,
    activation: Activation = "gelu",
) -> nn.Module:
    """PoolFormer: N×3×H×W to N×num_classes, any size; the last of its maps is 1/(8·patch_size) of the image."""
    from timm.layers import GroupNorm1
    from timm.models.metaformer import MetaFormer

    require_stages(widths=widths, depths=depths)
    require_positive(patch_size=patch_size, stem_kernel=stem_kernel, widths=min(widths), depths=min(depths))
    require_rate(drop_path=drop_path)
    model = MetaFormer(
        num_classes=num_classes,
        depths=depths,
        dims=widths,
        mlp_act=type(activate(activation)),
        mlp_bias=True,
        drop_path_rate=drop_path,
        layer_scale_init_values=1e-5,
        res_scale_init_values=(None,) * len(depths),
        downsample_norm=None,
        norm_layers=GroupNorm1,
        use_mlp_head=False,
    )
    padding = padding_for(stem_kernel, stride=patch_size)
    model.stem.conv = nn.Conv2d(3, widths[0], stem_kernel, stride=patch_size, padding=padding)
    model._init_weights(model.stem.conv)
    return model
