"""CoAtNet (Dai et al. 2021): stages of convolution (C) or of attention with relative positions (T), C first.

Paper 3 varies which stages are which; a `pattern` such as "CCTT" names the four. Its counts fit the small form by
chinhsuanwu, which is `CoAtNet` here: pre-normalised inverted bottlenecks with squeeze and excitation, attention of
8 heads of 32 channels whatever the width, and no bias in the classifier. Two things differ from that code: linear
layers start from a truncated normal of 0.02, and a stage may keep the size of its input (`strides`). At 32 pixels
paper 3's form ends in a 1×1 map; `coatnet_0_32` does not halve in the stem and the first stage and ends in 4×4.
`coatnet_0_224` is timm's, which follows the publication: heads grow with the width, biases everywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm, set_activation
from hardtack.models.zoo.layers import (
    Activation,
    DropPath,
    Mlp,
    activate,
    attend,
    ramp,
    relative_index,
    require_hidden,
    require_multiple,
    require_positive,
    require_rate,
    require_stages,
    start_small,
)

PATTERNS = ("CCTT", "CCTC", "CTTT", "CTTC", "CCCC", "CCCT", "CTCC", "CTCT")
"""The first stage convolves always."""


def _require_pattern(pattern: str) -> None:
    if pattern not in PATTERNS:
        raise UserError(f"pattern must be one of {', '.join(PATTERNS)}, found '{pattern}'")


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    """What stands for x in the sum where the branch changes its shape; None where x itself fits."""
    if stride == 1 and inputs == outputs:
        return None
    pool = nn.MaxPool2d(3, stride=2, padding=1) if stride == 2 else nn.Identity()
    return nn.Sequential(pool, nn.Conv2d(inputs, outputs, 1, bias=False))


class Excitation(nn.Module):
    """Squeeze and excitation: N×width×H×W, every channel scaled by a number read from all channel means."""

    def __init__(self, *, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden, bias=False)
        self.act = activate(activation)
        self.fc2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gates = self.fc2(self.act(self.fc1(x.mean((-2, -1))))).sigmoid()
        return x * gates[:, :, None, None]


class ConvolutionBlock(nn.Module):
    """Inverted bottleneck, normalised first: N×inputs×H×W to N×outputs×H/stride×W/stride."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, ratio: float, drop_path: float, activation: Activation
    ) -> None:
        super().__init__()
        hidden = int(inputs * ratio)
        self.norm = nn.BatchNorm2d(inputs)
        self.expand = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, stride=stride, bias=False), nn.BatchNorm2d(hidden), activate(activation)
        )
        self.mix = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            activate(activation),
        )
        self.excite = Excitation(width=hidden, hidden=max(inputs // 4, 1), activation=activation)
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = _shortcut(inputs, outputs, stride)
        self.drop_path = DropPath(rate=drop_path)

    def convolve(self, x: Tensor) -> Tensor:
        return self.project(self.excite(self.mix(self.expand(self.norm(x)))))

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return kept + self.drop_path(self.convolve(x))

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("convolution", self.convolve, identity=self.shortcut),)


class RelativeAttention(nn.Module):
    """Self-attention with a learned bias per head and offset: N×T×inputs to N×T×outputs, T = side²."""

    attention: ClassVar[str] = "token"
    relative_index: Tensor

    def __init__(self, inputs: int, outputs: int, *, side: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(inputs, 3 * heads * head_width, bias=False)
        self.proj = nn.Linear(heads * head_width, outputs)
        self.relative_bias = nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads))
        self.register_buffer("relative_index", relative_index(side), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.relative_bias[self.relative_index].permute(2, 0, 1)  # heads×T×T
        return self.proj(attend(q, k, v, bias=bias[None]).transpose(1, 2).flatten(2))


class AttentionBlock(nn.Module):
    """Attention, then the MLP, on a map: N×inputs×H×W to N×outputs×side×side; with stride 2 it is max-pooled first."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        stride: int,
        side: int,
        heads: int,
        head_width: int,
        ratio: float,
        drop_path: float,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.side = side
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if stride == 2 else nn.Identity()
        self.norm1 = nn.LayerNorm(inputs)
        self.attn = RelativeAttention(inputs, outputs, side=side, heads=heads, head_width=head_width)
        self.norm2 = nn.LayerNorm(outputs)
        self.mlp = Mlp(width=outputs, hidden=int(inputs * ratio), activation=activation)
        self.shortcut = _shortcut(inputs, outputs, stride)
        self.drop_path = DropPath(rate=drop_path)

    def attend(self, x: Tensor) -> Tensor:
        tokens = self.pool(x).flatten(2).transpose(1, 2)
        return self.attn(self.norm1(tokens)).transpose(1, 2).unflatten(2, (self.side, self.side))

    def feed(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm2(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        x = kept + self.drop_path(self.attend(x))
        return x + self.drop_path(self.feed(x))

    def branches(self) -> tuple[Branch, ...]:
        return Branch("attention", self.attend, identity=self.shortcut), Branch("mlp", self.feed)


def _of_paper_3(make: Any) -> Any:
    """Register the eight patterns of paper 3's second table, and its CoAtNet, the first of them."""
    told: dict[str, Any] = {"papers": ("arg",), "strides": (2, 2, 2, 2, 2)}
    for pattern in PATTERNS:
        help = f"paper 3's CoAtNet, stages {pattern}"
        models.register(f"coatnet_{pattern.lower()}.arg", help=help, pattern=pattern, **told)(make)
    models.register("coatnet.arg", help="paper 3's CoAtNet", pattern="CCTT", **told)(make)
    return make


@_of_paper_3
@models.register("coatnet_0_32", help="convolution stages, then attention stages, for small images")
class CoAtNet(nn.Module):
    """CoAtNet: N×3×image_size×image_size to N×num_classes.

    `strides` are those of the stem and of the first block of each stage, 1 or 2. A stage's blocks are told by its
    letter in `pattern`; `drop_path` is the rate of the last block.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        pattern: str = "CCTT",
        widths: tuple[int, ...] = (96, 192, 384, 768),
        depths: tuple[int, ...] = (2, 3, 5, 2),
        strides: tuple[int, ...] = (1, 1, 2, 2, 2),
        stem_width: int = 64,
        heads: int = 8,
        head_width: int = 32,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        _require_pattern(pattern)
        require_positive(image_size=image_size, stem_width=stem_width, heads=heads, head_width=head_width)
        require_rate(drop_path=drop_path)
        require_stages(pattern=pattern, widths=widths, depths=depths, strides=strides[1:])
        require_positive(widths=min(widths), depths=min(depths))
        require_hidden(min(stem_width, *widths), mlp_ratio)
        if set(strides) - {1, 2}:
            raise UserError(f"strides are 1 or 2, found {strides}")
        self.num_classes, self.image_size = num_classes, image_size

        def convolution(inputs: int, stride: int) -> list[nn.Module]:
            conv = nn.Conv2d(inputs, stem_width, 3, stride=stride, padding=1, bias=False)
            return [conv, nn.BatchNorm2d(stem_width), activate(activation)]

        self.stem = nn.Sequential(*convolution(3, strides[0]), *convolution(stem_width, 1))
        channels, side = stem_width, -(-image_size // strides[0])
        rates = iter(ramp(drop_path, sum(depths)))
        blocks: list[nn.Module] = []
        for letter, width, depth, first in zip(pattern, widths, depths, strides[1:], strict=True):
            for index in range(depth):
                stride = first if index == 0 else 1
                side = -(-side // stride)
                common: dict[str, Any] = {
                    "stride": stride, "ratio": mlp_ratio, "drop_path": next(rates), "activation": activation
                }  # fmt: skip
                if letter == "C":
                    blocks.append(ConvolutionBlock(channels, width, **common))
                else:
                    shape: dict[str, Any] = {"side": side, "heads": heads, "head_width": head_width}
                    blocks.append(AttentionBlock(channels, width, **shape, **common))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes, bias=False)
        start_small(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((-2, -1)))


@models.register("coatnet_0_224", help="convolution stages, then attention stages (timm's)")
def coatnet_of_timm(
    *,
    num_classes: int = 1000,
    image_size: int = 224,
    pattern: str = "CCTT",
    depths: tuple[int, ...] = (2, 3, 5, 2),
    drop_path: float = 0.0,
    activation: Activation | None = None,
) -> nn.Module:
    """timm's CoAtNet-0: N×3×image_size×image_size to N×num_classes, 1/32 of the size at the end.

    `activation` None is as published: GELU, SiLU in squeeze and excitation, tanh in the head.
    """
    _require_pattern(pattern)
    require_multiple(32, image_size=image_size)
    require_stages(pattern=pattern, depths=depths)
    require_positive(depths=min(depths))
    model = from_timm(
        "coatnet_0_224", num_classes=num_classes, image_size=image_size, drop_path=drop_path,
        block_type=tuple(pattern), depths=depths,
    )  # fmt: skip
    set_activation(model, activation)
    return model
