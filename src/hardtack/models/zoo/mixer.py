"""MLP-Mixer (Tolstikhin et al. 2021): one MLP across the tokens, one across the channels, no attention.

Parameters are named as in timm's `MlpMixer`, so that its weights load. Two things differ from the published form:
the head starts small instead of at zero, so that attacks find a gradient from the first step, and a class token can
be had, because paper 3's count has room for one; the head then reads it instead of the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    Mlp,
    ramp,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
)
from hardtack.models.zoo.vit import PatchEmbedding


class MixerBlock(nn.Module):
    """N×tokens×width to N×tokens×width: mix the tokens of each channel, then the channels of each token."""

    def __init__(
        self,
        *,
        tokens: int,
        width: int,
        token_hidden: int,
        hidden: int,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.mlp_tokens = Mlp(width=tokens, hidden=token_hidden, activation=activation)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp_channels = Mlp(width=width, hidden=hidden, activation=activation)
        self.drop_path = DropPath(rate=drop_path)

    def mix(self, x: Tensor) -> Tensor:
        return self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp_channels(self.norm2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.mix(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("token mlp", self.mix), Branch("mlp", self.feed)


@models.register(
    "mixer_b16_224",
    help="MLP-Mixer, base",
    published="mixer_b16_224",
    image_size=224,
    patch_size=16,
    width=768,
    depth=12,
)
@models.register("mixer_s16_224", help="MLP-Mixer, small", image_size=224, patch_size=16, width=512)
@models.register(
    "mixer.arg",
    help="paper 3's MLP-Mixer",
    papers=("arg",),
    width=128,
    token_ratio=4.0,
    mlp_ratio=0.5,
    class_token=True,
)
@models.register("mixer_tiny_patch4_32", help="MLP-Mixer, tiny")
class Mixer(nn.Module):
    """MLP-Mixer: N×3×image_size×image_size to N×num_classes.

    `token_ratio` and `mlp_ratio` give the hidden widths of the MLPs across tokens and across channels, both as
    multiples of `width`. `drop_path` is the rate of the last block.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 256,
        depth: int = 8,
        token_ratio: float = 0.5,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        class_token: bool = False,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_positive(width=width, depth=depth)
        hidden, token_hidden = require_hidden(width, mlp_ratio), require_hidden(width, token_ratio, name="token_ratio")
        require_rate(drop_path=drop_path)
        self.num_classes, self.image_size = num_classes, image_size
        self.num_prefix_tokens = int(class_token)
        tokens = require_patches(image_size, patch_size) ** 2 + self.num_prefix_tokens
        self.stem = PatchEmbedding(patch_size=patch_size, width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.blocks = nn.Sequential(
            *(
                MixerBlock(
                    tokens=tokens, width=width, token_hidden=token_hidden, hidden=hidden, drop_path=rate,
                    activation=activation,
                )
                for rate in ramp(drop_path, depth)
            )
        )  # fmt: skip
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x))
        return self.head(x.mean(1) if self.cls_token is None else x[:, 0])
