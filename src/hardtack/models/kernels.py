"""Triton kernels for the passes that training and attacks repeat most: layer norm, sums of columns, frozen batch norm.

PyTorch's layer norm spends a thread block on every row; with rows of a few hundred numbers, as tokens have, that is a
third of a small transformer's forward pass. Here a program takes several rows at once, forward and back, and writes in
the type that the next layer wants. Batch norm with fixed statistics is a factor and a summand per channel: one pass
over memory forward, one back.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hardtack.base.kernel_launch import as_in_forward, compiling, launch

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch, and systems Triton does not know
    triton = None

WIDEST = 4096
"""Numbers in a row of layer norm: it must fit into registers."""
_TILE = 4096  # numbers a program holds at once
_SUM_TILE = 2048  # the same where it also adds up the gradients of weights
_PROGRAMS = 528  # that add up: each writes one row of sums


def available() -> bool:
    """Whether Triton is installed. Without it nothing here can be called."""
    return triton is not None


# ---------------------------------------------------------------- layer norm


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dtype: torch.dtype) -> Tensor:
    """Normalise the last axis of `x`, at most WIDEST long, in fp32; the result is of this type."""
    return _Rows.apply(x, weight, bias, eps, dtype)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dtype: torch.dtype) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        count = x.numel() // width
        y = torch.empty_like(x, dtype=dtype)
        mean, scale = (x.new_empty(count, dtype=torch.float32) for _ in range(2))  # both begin at multiples of 16
        tiles, block = _tiling(count, width)
        given = (x, weight, bias, y, mean, scale, count, width, eps, bias is not None)
        launch(_normalise, (tiles,), *given, *block, writes=(y, mean, scale))
        ctx.compiler = compiling()
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return y

    @staticmethod
    @once_differentiable
    @as_in_forward
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        width = x.shape[-1]
        count = x.numel() // width
        back = torch.empty_like(x)
        if not (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            tiles, block = _tiling(count, width)
            given = (x, weight, mean, scale, gradient, back, count, width)
            launch(_normalise_back, (tiles,), *given, *block, writes=(back,))
            return back, None, None, None, None
        tiles, block = _tiling(count, width, _SUM_TILE)
        programs = min(tiles, _PROGRAMS)
        sums = x.new_empty(2, programs, width, dtype=torch.float32)
        launch(
            _normalise_back_all, (programs,), x, weight, mean, scale, gradient, back, sums[0], sums[1], count, width,
            tiles, programs, *block, writes=(back, sums),
        )  # fmt: skip
        of_weight, of_bias = sums.sum(1)
        return back, of_weight.to(weight.dtype), None if bias is None else of_bias.to(bias.dtype), None, None


def _tiling(count: int, width: int, size: int = _TILE) -> tuple[int, tuple[int, int]]:
    """How many tiles, and the rows and columns of each."""
    columns = 1 << (width - 1).bit_length()
    rows = max(size // columns, 1)
    return -(-count // rows), (rows, columns)


# ---------------------------------------------------------------- linear layers


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """x · weightᵀ + bias in this type, as autocast computes it. The bias's gradient, a sum over rows, is our kernel."""
    return _Linear.apply(x, weight, bias, dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        rows, matrix = x.to(dtype), weight.to(dtype)
        ctx.compiler = compiling()
        ctx.save_for_backward(rows, matrix)
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        with torch.autocast("cuda", enabled=False):
            return torch.nn.functional.linear(rows, matrix, None if bias is None else bias.to(dtype))

    @staticmethod
    @once_differentiable
    @as_in_forward
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, matrix = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.types
        gradient = gradients[0].reshape(-1, matrix.shape[0])
        back = matrix_gradient = bias_gradient = None
        if ctx.needs_input_grad[0]:
            back = (gradient @ matrix).view(rows.shape).to(of_x)
        if ctx.needs_input_grad[1]:
            matrix_gradient = (gradient.t() @ rows.reshape(-1, rows.shape[-1])).to(of_weight)
        if ctx.needs_input_grad[2]:
            bias_gradient = column_sums(gradient).to(of_bias)
        return back, matrix_gradient, bias_gradient, None


def column_sums(x: Tensor) -> Tensor:
    """The sums of the columns of a matrix, in fp32 and always in the same order."""
    x = x.contiguous()
    count, width = x.shape
    columns = min(128, max(16, 1 << (width - 1).bit_length()))
    rows = _TILE // columns
    programs = min(-(-count // rows), _PROGRAMS // -(-width // columns))
    sums = x.new_empty(programs, width, dtype=torch.float32)
    grid = (programs, -(-width // columns))
    launch(_column_sums, grid, x, sums, count, width, programs, rows, columns, writes=(sums,))
    return sums.sum(0)


# ---------------------------------------------------------------- batch norm with fixed statistics


def affine(x: Tensor, factor: Tensor, summand: Tensor) -> Tensor:
    """factor · x + summand by channel (the second axis); the gradient is that of `x` alone."""
    return _Channels.apply(x, factor, summand)


class _Channels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor, summand: Tensor) -> Tensor:
        ctx.compiler = compiling()
        ctx.save_for_backward(factor)
        x, inner = _dense(x)
        y = torch.empty_like(x)
        given = (x, factor, summand, y, x.numel(), len(factor), inner, True, _TILE)
        launch(_affine, (-(-x.numel() // _TILE),), *given, writes=(y,))
        return y

    @staticmethod
    @once_differentiable
    @as_in_forward
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = ctx.saved_tensors
        gradient, inner = _dense(gradients[0])
        back = torch.empty_like(gradient)
        given = (gradient, factor, factor, back, gradient.numel(), len(factor), inner, False, _TILE)
        launch(_affine, (-(-gradient.numel() // _TILE),), *given, writes=(back,))
        return back, None, None


def _dense(x: Tensor) -> tuple[Tensor, int]:
    """x without gaps in memory, and how many numbers of one channel lie side by side."""
    if x.is_contiguous(memory_format=torch.channels_last):
        return x, 1
    x = x.contiguous()
    return x, x.shape[2] * x.shape[3]


# ---------------------------------------------------------------- kernels

if triton is not None:
    # counts of rows and programs only bound loops and masks: no variant of a kernel for those that 16 divides
    @triton.jit(do_not_specialize=["count"])
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

    @triton.jit(do_not_specialize=["count"])
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

    @triton.jit(do_not_specialize=["count", "tiles", "programs"])
    def _normalise_back_all(
        x, weight, mean, scale, gradient, back, of_weight, of_bias, count, width, tiles, programs,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        """The same, and the gradients of weight and bias: each program adds up those of its tiles, in a fixed order."""
        first = tl.program_id(0)
        column = tl.arange(0, COLUMNS)
        factor = tl.load(weight + column, column < width, other=0.0).to(tl.float32)[None, :]
        sum_weight = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)  # rows are added up once, at the end
        sum_bias = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for tile in range(first, tiles, programs):
            row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
            inside = (row < count)[:, None] & (column < width)[None, :]
            at = row[:, None] * width + column[None, :]
            middle = tl.load(mean + row, row < count, other=0.0)[:, None]
            inverse = tl.load(scale + row, row < count, other=0.0)[:, None]
            apart = tl.where(inside, (tl.load(x + at, inside, other=0.0).to(tl.float32) - middle) * inverse, 0.0)
            pulled = tl.load(gradient + at, inside, other=0.0).to(tl.float32)
            sum_weight += pulled * apart
            sum_bias += pulled
            pulled *= factor
            level = tl.sum(pulled, 1)[:, None] / width
            slope = tl.sum(pulled * apart, 1)[:, None] / width
            out = (pulled - level - apart * slope) * inverse
            tl.store(back + at, out.to(back.dtype.element_ty), inside)
        tl.store(of_weight + first * width + column, tl.sum(sum_weight, 0), column < width)
        tl.store(of_bias + first * width + column, tl.sum(sum_bias, 0), column < width)

    @triton.jit(do_not_specialize=["count", "programs"])
    def _column_sums(x, sums, count, width, programs, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        first = tl.program_id(0)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for tile in range(first, tl.cdiv(count, ROWS), programs):
            row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
            inside = (row < count)[:, None] & (column < width)[None, :]
            total += tl.load(x + row[:, None] * width + column[None, :], inside, other=0.0).to(tl.float32)
        tl.store(sums + first * width + column, tl.sum(total, 0), column < width)

    @triton.jit
    def _affine(x, factor, summand, y, count, channels, inner, added: tl.constexpr, TILE: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
        inside = at < count
        channel = (at // inner) % channels
        out = tl.load(x + at, inside, other=0.0).to(tl.float32) * tl.load(factor + channel, inside, other=0.0)
        if added:
            out += tl.load(summand + channel, inside, other=0.0)
        tl.store(y + at, out.to(y.dtype.element_ty), inside)
