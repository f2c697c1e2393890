"""What several architectures truly share: attention over tokens, the MLP, drop-path, and how knobs are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError

Activation = Literal["gelu", "relu", "silu"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}

SHORT = 128
"""Up to this many tokens compiled attention is written out; at 64 tokens it is the faster way on an H200."""


def activate(name: Activation) -> nn.Module:
    return _ACTIVATIONS[name]()


def attend(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """softmax(q kᵀ · scale + bias) v for N×heads×T×d queries; `scale` is 1/√d unless given."""
    if torch.compiler.is_compiling() and k.shape[-2] <= SHORT:
        # two matrix products with a fused softmax between them beat the flash kernels here, forward and back
        scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
        weights = (scores if bias is None else scores + bias).softmax(dim=-1)
        return weights.to(v.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype), scale=scale)


class Attention(nn.Module):
    """Multi-head self-attention over N×T×width; `head_width` is width/heads unless given."""

    attention: ClassVar[str] = "token"

    def __init__(self, *, width: int, heads: int, head_width: int | None = None, qkv_bias: bool = True) -> None:
        super().__init__()
        self.num_heads = heads
        inner = heads * (head_width or width // heads)
        self.qkv = nn.Linear(width, 3 * inner, bias=qkv_bias)
        self.proj = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        # taken apart where the parts lie: going back, their gradients are put together without another copy
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).unflatten(2, (3, self.num_heads, -1)).unbind(2))
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear layers on the last axis."""

    def __init__(self, *, width: int, hidden: int, activation: Activation = "gelu") -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = activate(activation)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class PatchConvolution(nn.Conv2d):
    """Cuts N×inputs×H×W into squares and maps each linearly: N×outputs×(H/size)×(W/size).

    A type of its own, so that its kernel can be told from one that mixes channels where `size` is 1.
    """

    def __init__(self, inputs: int, outputs: int, *, size: int) -> None:
        super().__init__(inputs, outputs, size, stride=size)


class LayerScale(nn.Module):
    """A learned factor per channel of the last axis."""

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


def ramp(rate: float, depth: int) -> list[float]:
    """Drop-path rates of `depth` blocks, growing linearly from 0 to `rate`."""
    return [rate * index / max(depth - 1, 1) for index in range(depth)]


def relative_index(side: int) -> Tensor:
    """T×T, T = side²: for each pair of tokens the row of a (2·side−1)²-row table that their offset selects."""
    along = torch.arange(side)
    offset = along[:, None] - along[None, :] + side - 1  # 0 … 2·side−2 on one axis
    rows = offset[:, None, :, None] * (2 * side - 1) + offset[None, :, None, :]
    return rows.flatten(2).flatten(0, 1)


def padding_for(kernel: int, *, stride: int = 1, dilation: int = 1) -> int:
    """Zeros on either side with which a convolution turns `size` pixels into size/stride."""
    return max(0, -((stride - dilation * (kernel - 1) - 1) // 2))


def start_small(network: nn.Module, *, std: float = 0.02) -> None:
    """Linear layers truncated-normal with zero biases, as transformers begin; convolutions stay as torch made them."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


# ---------------------------------------------------------------- knobs


def require_positive(**numbers: int | float) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"{name} must be at least 1, found {value}")


def require_hidden(width: int, ratio: float, *, name: str = "mlp_ratio") -> int:
    """How many hidden units an MLP has."""
    if not 1 <= width * ratio < float("inf"):
        raise UserError(f"{name} must leave at least one hidden unit of width {width}, found {ratio}")
    return int(width * ratio)


def require_rate(**rates: float) -> None:
    for name, value in rates.items():
        if not 0.0 <= value < 1.0:
            raise UserError(f"{name} must lie in [0, 1), found {value}")


def require_heads(width: int, heads: int) -> None:
    require_positive(width=width, heads=heads)
    if width % heads:
        raise UserError(f"width {width} cannot be shared among {heads} heads; take a multiple of {heads}")


def require_patches(image_size: int, patch_size: int) -> int:
    """How many patches go along an edge."""
    require_positive(image_size=image_size, patch_size=patch_size)
    if image_size % patch_size:
        raise UserError(f"image_size {image_size} cannot be cut into patches of {patch_size} pixels")
    return image_size // patch_size


def require_multiple(factor: int, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < factor or value % factor:
            raise UserError(f"{name} must be a multiple of {factor} here, found {value}")


def require_stages(**per_stage: Sequence[object]) -> int:
    """How many stages: every one of these lists has an entry for each."""
    counts = {name: len(values) for name, values in per_stage.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        said = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"every stage needs one entry in each of these lists: {said}")
    return next(iter(counts.values()))
