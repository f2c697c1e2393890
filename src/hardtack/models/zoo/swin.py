"""Swin (Liu et al. 2021): a pyramid of transformers that attend inside windows, every other block in shifted ones.

The networks with `window` in their names are timm's. Paper 3's count (27.42 M) fits none of those but the compact
form known from berniwal's code, which is `CompactSwin` here: patches are merged by one linear layer with a bias and
no norm, `downscale` to a side; queries, keys and values have no bias; one table of relative positions serves all
heads of a block. That count needs window 4, no merging before the second stage and at most 2×2 before the first:
(2, 1, 2, 2) makes 27,428,086 parameters and maps of 16, 16, 8, 4; (1, 1, 2, 2) makes 27,427,222. As in the paper by
Swin's authors, and unlike that code, weights start from a truncated normal of 0.02, and a map no larger than the
window is not shifted.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models.zoo.from_timm import from_timm, set_activation
from hardtack.models.zoo.layers import (
    Activation,
    Mlp,
    attend,
    ramp,
    relative_index,
    require_heads,
    require_hidden,
    require_patches,
    require_positive,
    require_rate,
    require_stages,
    start_small,
)
from hardtack.models.zoo.vit import Block

# ---------------------------------------------------------------- timm's

_LARGE: dict[str, Any] = {"image_size": 224, "patch_size": 4, "window": 7}


def _published(letter: str, **presets: Any) -> Any:
    name = f"swin_{letter}_patch4_window7_224"
    papers = () if letter == "small" else ("rspc",)
    return models.register(name, help=f"shifted windows, {letter}", papers=papers, published=name, **_LARGE, **presets)


@_published("base", width=128, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32))
@_published("small", depths=(2, 2, 18, 2))
@_published("tiny")
@models.register("swin_tiny_patch2_window4_32", help="shifted windows, tiny, for small images")
def swin(
    *,
    num_classes: int = 10,
    image_size: int = 32,
    patch_size: int = 2,
    window: int = 4,
    width: int = 96,
    depths: tuple[int, ...] = (2, 2, 6, 2),
    heads: tuple[int, ...] = (3, 6, 12, 24),
    mlp_ratio: float = 4.0,
    drop_path: float = 0.0,
    activation: Activation = "gelu",
) -> nn.Module:
    """timm's Swin: N×3×image_size×image_size to N×num_classes; each stage doubles `width` and halves the map.

    Maps that windows do not fit are padded for attention, odd ones for the next stage.
    """
    require_stages(depths=depths, heads=heads)
    require_positive(window=window, width=width, depths=min(depths))
    require_hidden(width, mlp_ratio)
    side = require_patches(image_size, patch_size)
    for stage, count in enumerate(heads):
        require_heads(width * 2**stage, count)
        if side < 2**stage:
            raise UserError(f"{side}×{side} patches cannot be halved {stage} times")
    model = from_timm(
        "swin_tiny_patch4_window7_224", num_classes=num_classes, image_size=image_size, drop_path=drop_path,
        drop_path_rate=drop_path,  # said even when it is 0, for timm's own is 0.1
        patch_size=patch_size, window_size=window, embed_dim=width, depths=depths, num_heads=heads, mlp_ratio=mlp_ratio,
    )  # fmt: skip
    set_activation(model, activation)  # timm's Swin would take the word and ignore it
    _require_known_windows(model, side, len(depths), window, image_size)
    return model


def _require_known_windows(model: nn.Module, side: int, stages: int, window: int, image_size: int) -> None:
    """Odd maps are padded before they are halved; before 1.0.31 timm made the masks of their shifted windows too small.

    Whether the installed timm can is found by a pass without numbers.
    """
    odd = [stage for stage in range(1, stages) if side % 2**stage]
    if not odd:
        return
    try:
        copy.deepcopy(model).to("meta")(torch.zeros(1, 3, image_size, image_size, device="meta"))
    except RuntimeError:
        padded = -(-side // 2 ** odd[0])
        raise UserError(
            f"of {side}×{side} patches stage {odd[0] + 1} has a {padded}×{padded} map, which timm's Swin cannot cut "
            f"into shifted windows of {window}×{window}; take an image_size that can be halved evenly, or a newer timm"
        ) from None


# ---------------------------------------------------------------- paper 3's


def _require_windows(side: int, window: int) -> None:
    """A map is one window, or cut into whole ones."""
    if side > window and side % window:
        raise UserError(f"a {side}×{side} map cannot be cut into windows of {window}×{window}")


def to_windows(x: Tensor, window: int) -> Tensor:
    """N×H×W×D to (N·windows)×window²×D, the windows of an image in reading order."""
    n, height, width, depth = x.shape
    x = x.reshape(n, height // window, window, width // window, window, depth)
    return x.transpose(2, 3).reshape(-1, window * window, depth)


def from_windows(windows: Tensor, window: int, side: int) -> Tensor:
    """Undo `to_windows` for a side×side map."""
    x = windows.reshape(-1, side // window, side // window, window, window, windows.shape[-1])
    return x.transpose(2, 3).reshape(-1, side, side, windows.shape[-1])


def shift_mask(side: int, window: int, shift: int) -> Tensor:
    """windows×1×window²×window²: −∞ between tokens that only the cyclic shift has brought into one window."""
    along = torch.arange(side)
    part = (along >= side - window).long() + (along >= side - shift).long()
    parts = to_windows((3 * part[:, None] + part)[None, :, :, None], window)  # windows×window²×1
    apart = parts != parts.transpose(1, 2)
    return torch.zeros(apart.shape).masked_fill(apart, float("-inf"))[:, None]


class WindowAttention(nn.Module):
    """Self-attention inside windows: (N·windows)×window²×width; `mask` is that of shifted windows, or None."""

    attention: ClassVar[str] = "window"
    relative_index: Tensor
    mask: Tensor | None

    def __init__(self, *, width: int, heads: int, window: int, mask: Tensor | None) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.relative_bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2))
        self.register_buffer("relative_index", relative_index(window), persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.relative_bias[self.relative_index][None, None]
        if self.mask is not None:
            bias = (bias + self.mask).repeat(x.shape[0] // self.mask.shape[0], 1, 1, 1)  # for every image
        return self.proj(attend(q, k, v, bias=bias).transpose(1, 2).flatten(2))


class WindowBlock(Block):
    """Window attention, then the MLP, each added to what came in: N×side×side×width."""

    channels_last: ClassVar[bool] = True

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        side: int,
        window: int,
        shifted: bool,
        hidden: int,
        drop_path: float,
        activation: Activation,
    ) -> None:
        window = min(window, side)
        shift = window // 2 if shifted and side > window else 0
        mask = shift_mask(side, window, shift) if shift else None
        attention = WindowAttention(width=width, heads=heads, window=window, mask=mask)
        mlp = Mlp(width=width, hidden=hidden, activation=activation)
        super().__init__(attention, mlp, width=width, drop_path=drop_path, eps=1e-5)
        self.side, self.window, self.shift = side, window, shift

    def attend(self, x: Tensor) -> Tensor:
        x = self.norm1(x)
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        x = from_windows(self.attn(to_windows(x, self.window)), self.window, self.side)
        return torch.roll(x, (self.shift, self.shift), dims=(1, 2)) if self.shift else x


class PatchMerging(nn.Module):
    """One linear layer over each factor×factor square: N×H×W×inputs to N×H/factor×W/factor×outputs."""

    def __init__(self, inputs: int, outputs: int, *, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self.linear = nn.Linear(inputs * factor**2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        n, height, width, _ = x.shape
        squares = to_windows(x, self.factor).flatten(1)
        return self.linear(squares.reshape(n, height // self.factor, width // self.factor, -1))


@models.register("swin.arg", help="paper 3's Swin", papers=("arg",))
class CompactSwin(nn.Module):
    """Swin in its compact form: N×3×image_size×image_size to N×num_classes.

    Stage i merges downscale[i] × downscale[i] squares, doubles the width (but for the first) and has depths[i]
    blocks, every other one shifted. `drop_path` is the rate of the last block.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        image_size: int = 32,
        downscale: tuple[int, ...] = (2, 1, 2, 2),
        window: int = 4,
        width: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        heads: tuple[int, ...] = (3, 6, 12, 24),
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        require_stages(downscale=downscale, depths=depths, heads=heads)
        require_positive(window=window, downscale=min(downscale), depths=min(depths))
        require_rate(drop_path=drop_path)
        self.num_classes, self.image_size = num_classes, image_size
        rates = iter(ramp(drop_path, sum(depths)))
        channels, side = 3, image_size
        stages: list[nn.Module] = []
        for stage, (factor, depth, count) in enumerate(zip(downscale, depths, heads, strict=True)):
            side, outputs = require_patches(side, factor), width * 2**stage
            require_heads(outputs, count)
            _require_windows(side, window)
            blocks = [
                WindowBlock(
                    width=outputs, heads=count, side=side, window=window, shifted=index % 2 == 1,
                    hidden=require_hidden(outputs, mlp_ratio), drop_path=next(rates), activation=activation,
                )
                for index in range(depth)
            ]  # fmt: skip
            stages.append(nn.Sequential(PatchMerging(channels, outputs, factor=factor), *blocks))
            channels = outputs
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, num_classes)
        start_small(self)
        for module in self.modules():
            if isinstance(module, WindowAttention):
                nn.init.trunc_normal_(module.relative_bias, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(x.permute(0, 2, 3, 1))
        return self.head(self.norm(x.mean((1, 2))))
