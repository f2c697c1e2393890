"""ConViT (d'Ascoli et al. 2021): a vision transformer whose first blocks may look by position, as convolutions do.

timm's network. In all but the last `plain_depth` blocks each head mixes two attention maps, one of content and one
of relative position, by a learned gate; the class token joins only after them. One thing is set right: timm keeps
the relative positions as a plain attribute, made in the first forward pass, which stays behind when the network
moves to another device; here they are a buffer.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm, set_activation
from hardtack.models.zoo.layers import Activation, require_hidden, require_patches, require_positive

HEAD_WIDTH = 48
_LARGE: dict[str, Any] = {"papers": ("rspc",), "image_size": 224, "patch_size": 16}


@models.register("convit_base_patch16_224", help="gated positions, base", published="convit_base", heads=16, **_LARGE)
@models.register("convit_small_patch16_224", help="gated positions, small", published="convit_small", heads=9, **_LARGE)
@models.register("convit_tiny_patch16_224", help="gated positions, tiny", published="convit_tiny", **_LARGE)
@models.register("convit_tiny_patch4_32", help="gated positions, tiny, for small images")
def convit(
    *,
    num_classes: int = 10,
    image_size: int = 32,
    patch_size: int = 4,
    depth: int = 12,
    plain_depth: int = 2,
    heads: int = 4,
    mlp_ratio: float = 4.0,
    drop_path: float = 0.0,
    activation: Activation = "gelu",
) -> nn.Module:
    """ConViT: N×3×image_size×image_size to N×num_classes; its width is 48 · heads."""
    require_positive(depth=depth, plain_depth=plain_depth, heads=heads)
    if plain_depth > depth:
        raise UserError(f"the last plain_depth blocks are plain: {plain_depth} of {depth} cannot be")
    require_hidden(HEAD_WIDTH * heads, mlp_ratio)
    tokens = require_patches(image_size, patch_size) ** 2
    model: Any = from_timm(
        "convit_tiny", num_classes=num_classes, image_size=image_size, drop_path=drop_path, patch_size=patch_size,
        depth=depth, local_up_to_layer=depth - plain_depth, embed_dim=HEAD_WIDTH, num_heads=heads, mlp_ratio=mlp_ratio,
    )  # fmt: skip
    for block in model.blocks[: depth - plain_depth]:
        del block.attn.rel_indices
        block.attn.register_buffer("rel_indices", block.attn.get_rel_indices(tokens), persistent=False)
    set_activation(model, activation)
    return model
