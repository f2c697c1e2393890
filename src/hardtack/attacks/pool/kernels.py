"""Normalisation layers of a fast copy as Triton kernels: their parameters are fixed, only pixels have gradients.

PyTorch's layer norm spends a thread block on every row; with rows of a few hundred numbers, as tokens have, that is a
third of a small transformer's forward pass. Here a program takes several rows at once. Batch norm of a frozen model
is a factor and a summand per channel: one pass over memory forward, one back. Without Triton nothing is replaced.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch, and systems Triton does not know
    triton = None

_WIDEST = 4096  # a row must fit into registers
_TILE = 4096  # numbers a program holds at once


def quicken(model: nn.Module) -> None:
    """Replace the normalisation layers of a frozen model in eval mode, in place."""
    if triton is None:
        return
    for parent in model.modules():
        for name, child in parent.named_children():
            # timm's LayerNorm is torch's with a switch; subclasses that normalise another axis keep their own way
            if isinstance(child, nn.LayerNorm) and type(child).__name__ == "LayerNorm" and _is_row(child):
                setattr(parent, name, _LayerNorm(child))
            elif type(child) is nn.BatchNorm2d and child.running_var is not None:
                setattr(parent, name, _BatchNorm(child))


def _is_row(norm: nn.LayerNorm) -> bool:
    return len(norm.normalized_shape) == 1 and norm.normalized_shape[0] <= _WIDEST and norm.elementwise_affine


class _LayerNorm(nn.Module):
    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # a compiler fuses it with what stands beside it
            return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
        return _Rows.apply(x, self.weight, self.bias, self.eps)


class _BatchNorm(nn.Module):
    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None and norm.running_var is not None
        factor = (norm.running_var.double() + norm.eps).rsqrt()
        factor = factor if norm.weight is None else factor * norm.weight.double()
        summand = -norm.running_mean.double() * factor
        summand = summand if norm.bias is None else summand + norm.bias.double()
        self.factor, self.summand = factor.float(), summand.float()  # no buffers: they stay as they are in a cast

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return (x * self.factor[:, None, None] + self.summand[:, None, None]).to(x.dtype)
        return _Channels.apply(x, self.factor, self.summand)


# ---------------------------------------------------------------- layer norm


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        count = x.numel() // width
        y = torch.empty_like(x)
        mean, scale = x.new_empty(2, count, dtype=torch.float32)
        grid, block = _tiling(count, width)
        _normalise[grid](x, weight, bias, y, mean, scale, count, width, eps, bias is not None, *block)
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        width = x.shape[-1]
        count = x.numel() // width
        back = torch.empty_like(x)
        grid, block = _tiling(count, width)
        _normalise_back[grid](x, weight, mean, scale, gradient, back, count, width, *block)
        return back, None, None, None


def _tiling(count: int, width: int) -> tuple[tuple[int], tuple[int, int]]:
    """How many programs, and the rows and columns each holds."""
    columns = 1 << (width - 1).bit_length()
    rows = max(_TILE // columns, 1)
    return (-(-count // rows),), (rows, columns)


# ---------------------------------------------------------------- batch norm


class _Channels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor, summand: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        x, inner = _dense(x)
        y = torch.empty_like(x)
        _affine[(-(-x.numel() // _TILE),)](x, factor, summand, y, x.numel(), len(factor), inner, True, _TILE)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = ctx.saved_tensors
        gradient, inner = _dense(gradients[0])
        back = torch.empty_like(gradient)
        count = gradient.numel()
        _affine[(-(-count // _TILE),)](gradient, factor, factor, back, count, len(factor), inner, False, _TILE)
        return back, None, None


def _dense(x: Tensor) -> tuple[Tensor, int]:
    """x without gaps in memory, and how many numbers of one channel lie side by side."""
    if x.is_contiguous(memory_format=torch.channels_last):
        return x, 1
    x = x.contiguous()
    return x, x.shape[2] * x.shape[3]


# ---------------------------------------------------------------- kernels

if triton is not None:

    @triton.jit
    def _normalise(
        x, weight, bias, y, mean, scale, count, width, eps, biased: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        value = tl.load(x + at, inside, other=0.0).to(tl.float32)
        middle = tl.sum(value, 1) / width
        apart = tl.where(inside, value - middle[:, None], 0.0)
        inverse = tl.rsqrt(tl.sum(apart * apart, 1) / width + eps)
        out = apart * inverse[:, None] * tl.load(weight + column, column < width, other=0.0).to(tl.float32)[None, :]
        if biased:
            out += tl.load(bias + column, column < width, other=0.0).to(tl.float32)[None, :]
        tl.store(y + at, out.to(y.dtype.element_ty), inside)
        tl.store(mean + row, middle, row < count)
        tl.store(scale + row, inverse, row < count)

    @triton.jit
    def _normalise_back(
        x, weight, mean, scale, gradient, back, count, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        middle = tl.load(mean + row, row < count, other=0.0)[:, None]
        inverse = tl.load(scale + row, row < count, other=0.0)[:, None]
        apart = tl.where(inside, (tl.load(x + at, inside, other=0.0).to(tl.float32) - middle) * inverse, 0.0)
        pulled = tl.load(gradient + at, inside, other=0.0).to(tl.float32)
        pulled *= tl.load(weight + column, column < width, other=0.0).to(tl.float32)[None, :]
        level = tl.sum(pulled, 1)[:, None] / width
        slope = tl.sum(pulled * apart, 1)[:, None] / width
        out = (pulled - level - apart * slope) * inverse
        tl.store(back + at, out.to(back.dtype.element_ty), inside)

    @triton.jit
    def _affine(x, factor, summand, y, count, channels, inner, added: tl.constexpr, TILE: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
        inside = at < count
        channel = (at // inner) % channels
        out = tl.load(x + at, inside, other=0.0).to(tl.float32) * tl.load(factor + channel, inside, other=0.0)
        if added:
            out += tl.load(summand + channel, inside, other=0.0)
        tl.store(y + at, out.to(y.dtype.element_ty), inside)
