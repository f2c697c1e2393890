"""MobileViT, inverted residuals with transformers between patches (Mehta & Rastegari 2022).

A map is cut into 2×2 patches, and the tokens at the same place of all patches attend to each other: four sets of
tokens for each image, (4·N)×T×width. Convolutions before and after carry what is inside a patch. A map that patches
do not fit is resized for the transformer, as published; one smaller than a patch is a single token.

`mobilevit_s_32` is MobileViT-S with a total stride of 4, so that 32-pixel images have 64, 16 and 16 tokens in each
set. Paper 3's network is a small public PyTorch form (`plain`): eight channels per head whatever the width, wider MLPs,
the way into the transformer normalised and activated and its end not, no biases of queries, keys, values and classes.
It keeps the total stride of 32, which leaves 32-pixel images 4, 1 and 1 tokens. The 224-pixel one is timm's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.branches import Branch
from hardtack.models.zoo.from_timm import from_timm
from hardtack.models.zoo.layers import (
    Activation,
    Attention,
    Mlp,
    activate,
    ramp,
    require_heads,
    require_hidden,
    require_positive,
    require_rate,
)
from hardtack.models.zoo.resnet import convolution, initialise_convolutions
from hardtack.models.zoo.vit import Block


def _unit(
    inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1, activation: Activation
) -> nn.Sequential:
    """A convolution, normalised and activated."""
    layer = convolution(inputs, outputs, kernel=kernel, stride=stride, groups=groups)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), activate(activation))


class InvertedResidual(nn.Module):
    """1×1 to `expansion` times the channels, 3×3 on each, 1×1 to `outputs`; plus x where shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, expansion: int, activation: Activation) -> None:
        super().__init__()
        hidden = expansion * inputs
        self.branch = nn.Sequential(
            _unit(inputs, hidden, kernel=1, activation=activation),
            _unit(hidden, hidden, kernel=3, stride=stride, groups=hidden, activation=activation),
            convolution(hidden, outputs, kernel=1),
            nn.BatchNorm2d(outputs),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.adds else self.branch(x)

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("convolution", self.branch),) if self.adds else ()


def split(x: Tensor, size: int) -> Tensor:
    """N×D×H×W to (N·size²)×T×D: the pixels at one place of the size×size patches stand together as tokens."""
    n, width, height, breadth = x.shape
    x = x.reshape(n, width, height // size, size, breadth // size, size)
    return x.permute(0, 3, 5, 2, 4, 1).reshape(n * size * size, -1, width)


def join(tokens: Tensor, size: int, height: int) -> Tensor:
    """The inverse of `split`."""
    n, width = tokens.shape[0] // size**2, tokens.shape[-1]
    x = tokens.reshape(n, size, size, height // size, -1, width)
    return x.permute(0, 5, 3, 1, 4, 2).reshape(n, width, height, -1)


class PatchTransformer(nn.Module):
    """Transformer blocks between the patches of a map, and convolutions around them: N×channels×H×W to the same."""

    def __init__(
        self,
        channels: int,
        *,
        width: int,
        heads: int,
        hidden: int,
        rates: list[float],
        patch_size: int,
        activation: Activation,
        head_width: int | None,
        plain: bool,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.local = _unit(channels, channels, kernel=3, activation=activation)
        entrance = _unit(channels, width, kernel=1, activation=activation)
        self.enter = entrance if plain else entrance[0]
        self.blocks = nn.Sequential(*(
            Block(
                Attention(width=width, heads=heads, head_width=head_width, qkv_bias=not plain),
                Mlp(width=width, hidden=hidden, activation=activation),
                width=width, drop_path=rate,
            )
            for rate in rates
        ))  # fmt: skip
        self.norm = nn.Identity() if plain else nn.LayerNorm(width, eps=1e-6)
        self.leave = _unit(width, channels, kernel=1, activation=activation)
        self.fuse = _unit(2 * channels, channels, kernel=3, activation=activation)

    def forward(self, x: Tensor) -> Tensor:
        y = self.enter(self.local(x))
        shape = y.shape[-2:]
        size = min(self.patch_size, *shape)
        fitting = (-(-shape[0] // size) * size, -(-shape[1] // size) * size)
        y = y if fitting == tuple(shape) else F.interpolate(y, size=fitting, mode="bilinear")
        y = join(self.norm(self.blocks(split(y, size))), size, fitting[0])
        y = y if fitting == tuple(shape) else F.interpolate(y, size=tuple(shape), mode="bilinear")
        return self.fuse(torch.cat([x, self.leave(y)], dim=1))


def _require_lengths(length: int, **numbers: tuple[float, ...]) -> None:
    for name, values in numbers.items():
        if len(values) != length or min(values) <= 0:
            raise UserError(f"{name} must be {length} positive numbers, found {values}")


@models.register(
    "mobilevit.arg", help="paper 3's mobile network with attention between patches", papers=("arg",),
    strides=(2, 2, 2, 2, 2), head_width=8, mlp_ratios=(2.0, 4.0, 4.0), plain=True,
)  # fmt: skip
@models.register("mobilevit_s_32", help="mobile network with attention between patches")
class MobileViT(nn.Module):
    """Mobile network with attention between patches: N×3×H×W to N×num_classes.

    `widths` are the channels of the stem, of five stages and of the last convolution; the last three stages attend,
    with `token_widths` channels and `depths` blocks. `strides` are those of the stem and of all stages but the first.
    `head_width` None shares the tokens' channels among the heads. `drop_path` is the rate of the last transformer
    block. `plain` is the form that paper 3's count points to.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        patch_size: int = 2,
        widths: tuple[int, ...] = (16, 32, 64, 96, 128, 160, 640),
        token_widths: tuple[int, ...] = (144, 192, 240),
        depths: tuple[int, ...] = (2, 4, 3),
        heads: int = 4,
        head_width: int | None = None,
        mlp_ratios: tuple[float, ...] = (2.0, 2.0, 2.0),
        strides: tuple[int, ...] = (1, 2, 1, 2, 1),
        expansion: int = 4,
        drop_path: float = 0.0,
        activation: Activation = "silu",
        plain: bool = False,
    ) -> None:
        super().__init__()
        _require_lengths(7, widths=widths)
        _require_lengths(3, token_widths=token_widths, depths=depths, mlp_ratios=mlp_ratios)
        _require_lengths(5, strides=strides)
        if not set(strides) <= {1, 2}:
            raise UserError(f"strides must be 1 or 2, found {strides}")
        require_positive(patch_size=patch_size, expansion=expansion, heads=heads, head_width=head_width or 1)
        require_rate(drop_path=drop_path)
        self.num_classes = num_classes
        stem, first, second, *attending, last = widths
        self.stem = _unit(3, stem, kernel=3, stride=strides[0], activation=activation)

        def inverted(inputs: int, outputs: int, stride: int) -> InvertedResidual:
            return InvertedResidual(inputs, outputs, stride=stride, expansion=expansion, activation=activation)

        layers: list[nn.Module] = [inverted(stem, first, 1), inverted(first, second, strides[1])]
        layers += [inverted(second, second, 1), inverted(second, second, 1)]
        channels, rates = second, ramp(drop_path, sum(depths))
        for index, (outputs, width, depth) in enumerate(zip(attending, token_widths, depths, strict=True)):
            if head_width is None:
                require_heads(width, heads)
            layers.append(inverted(channels, outputs, strides[2 + index]))
            layers.append(PatchTransformer(
                outputs, width=width, heads=heads, rates=rates[:depth],
                hidden=require_hidden(width, mlp_ratios[index], name="mlp_ratios"),
                patch_size=patch_size, activation=activation, head_width=head_width, plain=plain,
            ))  # fmt: skip
            channels, rates = outputs, rates[depth:]
        self.blocks = nn.Sequential(*layers)
        self.last = _unit(channels, last, kernel=1, activation=activation)
        self.head = nn.Linear(last, num_classes, bias=not plain)
        self._initialise()

    def _initialise(self) -> None:
        initialise_convolutions(self)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.blocks(self.stem(x)))
        return self.head(x.mean((-2, -1)))


@models.register(
    "mobilevit_s_224", help="mobile network with attention between patches for ImageNet", published="mobilevit_s"
)
def mobilevit_s_224(*, num_classes: int = 1000, drop_path: float = 0.0, activation: Activation = "silu") -> nn.Module:
    return from_timm("mobilevit_s", num_classes=num_classes, drop_path=drop_path, activation=activation)
