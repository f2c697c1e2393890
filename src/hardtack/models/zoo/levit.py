"""LeViT (Graham et al. 2021): a convolutional stem, then three stages of attention with batch norms, made for speed.

timm's LeViT-128S. `patch_size` is the stride of the stem: 16 with its four convolutions as published, 8 with three
of them, 4 with those three of which the first does not halve. `distilled` adds the second head, averaged with the
first, which the published weights have. Paper 3's parameters (6.67 M) could not be traced to a configuration; what
stands under its name is 128S with one head and the three-convolution stem (7.00 M), 4×4 tokens at 32 pixels.

One thing is set right: in eval mode timm keeps the attention biases it looked up first. Weights loaded later, and
gradients after a pass without them, would not see the true ones; here they are looked up each time.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import Activation, require_hidden, require_patches, require_positive, require_stages


@models.register(
    "levit_128s_224", help="attention pyramid made for speed", published="levit_128s", image_size=224, patch_size=16,
    distilled=True,
)  # fmt: skip
@models.register("levit.arg", help="nearest to paper 3's LeViT", papers=("arg",), patch_size=8)
@models.register("levit_128s_32", help="attention pyramid made for speed, for small images")
def levit(
    *,
    num_classes: int = 10,
    image_size: int = 32,
    patch_size: int = 4,
    widths: tuple[int, ...] = (128, 256, 384),
    depths: tuple[int, ...] = (2, 3, 4),
    heads: tuple[int, ...] = (4, 6, 8),
    mlp_ratio: float = 2.0,
    distilled: bool = False,
    drop_path: float = 0.0,
    activation: Activation | None = None,
) -> nn.Module:
    """LeViT: N×3×image_size×image_size to N×num_classes; `activation` None is its own hard swish."""
    require_stages(widths=widths, depths=depths, heads=heads)
    require_positive(depths=min(depths), heads=min(heads), widths=min(widths))
    require_hidden(min(widths), mlp_ratio)
    if patch_size not in (4, 8, 16):
        raise UserError(f"patch_size is the stride of the stem, 4, 8 or 16, found {patch_size}")
    if any(width % 16 for width in widths):
        raise UserError(f"widths are multiples of 16, the width of a key; found {widths}")
    require_patches(image_size, patch_size)
    undivided = patch_size == 4  # timm knows stems of 8 and 16 only: the grid is that of an image twice as large
    model: Any = from_timm(
        "levit_128s", num_classes=num_classes, image_size=image_size * (2 if undivided else 1), drop_path=drop_path,
        stem_type="s16" if patch_size == 16 else "s8", embed_dim=widths, depth=depths, num_heads=heads,
        mlp_ratio=mlp_ratio, distilled=distilled, activation=activation,
    )  # fmt: skip
    if undivided:
        model.stem.conv1.linear.stride = (1, 1)
    for module in model.modules():
        if hasattr(module, "get_attention_biases"):
            module.get_attention_biases = MethodType(_look_up_biases, module)
    return model


def _look_up_biases(attention: Any, device: torch.device) -> Tensor:
    return attention.attention_biases[:, attention.attention_bias_idxs]
