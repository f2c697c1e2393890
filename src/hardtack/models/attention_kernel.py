"""Attention over short sequences as Triton kernels: one program holds all queries, keys and values of a head.

With up to 128 tokens the scores of a head fit into registers, so that forward and backward are one kernel each, nothing
but q, k and v is kept, and the softmax is computed again on the way back. A class token makes the number of tokens one
more than a power of two; tiles of twice the size would be almost empty, so the tokens are cut into a main block and a
tail, each a power of two.
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
except ImportError:
    triton = None

LONGEST = 128
"""Tokens."""
WIDEST = 128
"""Channels of a head."""


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `attention` takes these N×heads×T×d tensors."""
    alike = q.dim() == 4 and q.shape == k.shape == v.shape and q.dtype == k.dtype == v.dtype
    half = q.dtype in (torch.bfloat16, torch.float16)
    return alike and half and q.is_cuda and q.shape[2] <= LONGEST and q.shape[3] <= WIDEST and triton is not None


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(q kᵀ · scale) v, N×heads×T×d; the products take the inputs as they are, the softmax is in fp32."""
    return _Attention.apply(q, k, v, scale)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        q, k, v = (_rows(each) for each in (q, k, v))
        out = _empty(q)
        images, heads, tokens, width = q.shape
        places = (*_places(q), *_places(k), *_places(v), *_places(out))
        launch(
            _forward, (images * heads,), q, k, v, out, *places, heads, tokens, width, scale,
            **_blocks(tokens, width), writes=(out,),
        )  # fmt: skip
        ctx.compiler = compiling()
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    @as_in_forward
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        gradient = _rows(gradients[0])
        of_q, of_k, of_v = _empty(q), _empty(q), _empty(q)
        images, heads, tokens, width = q.shape
        places = (*_places(q), *_places(k), *_places(v), *_places(gradient), *_places(of_q))
        launch(
            _backward, (images * heads,), q, k, v, gradient, of_q, of_k, of_v, *places, heads, tokens, width, ctx.scale,
            **_blocks(tokens, width), writes=(of_q, of_k, of_v),
        )  # fmt: skip
        return of_q, of_k, of_v, None


def _rows(x: Tensor) -> Tensor:
    """With the channels of a token side by side."""
    return x if x.stride(3) == 1 else x.contiguous()


def _places(x: Tensor) -> tuple[int, int, int]:
    return x.stride(0), x.stride(1), x.stride(2)


def _empty(q: Tensor) -> Tensor:
    """Like q, with the heads of a token side by side, as the next linear layer reads them."""
    images, heads, tokens, width = q.shape
    return q.new_empty(images, tokens, heads, width).transpose(1, 2)


def _blocks(tokens: int, width: int) -> dict[str, int]:
    """Sizes of the main block and of the tail (0: there is none), of the padded channels, and warps."""
    main = max(16, 1 << (tokens.bit_length() - 1))
    rest, tail = max(0, tokens - main), 0
    if rest > main // 2:
        main *= 2
    elif rest:
        tail = max(16, 1 << (rest - 1).bit_length())
    return {
        "MAIN": main,
        "TAIL": tail,
        "WIDTH": max(16, 1 << (width - 1).bit_length()),
        "num_warps": 8 if main > 64 else 4,
    }


# ---------------------------------------------------------------- kernels

if triton is not None:

    @triton.jit
    def _load(x, start, row, per_row, column, tokens, width):
        inside = (row < tokens)[:, None] & (column < width)[None, :]
        return tl.load(x + start + row[:, None] * per_row + column[None, :], inside, other=0.0)

    @triton.jit
    def _store(x, start, row, per_row, column, tokens, width, value):
        inside = (row < tokens)[:, None] & (column < width)[None, :]
        tl.store(x + start + row[:, None] * per_row + column[None, :], value.to(x.dtype.element_ty), inside)

    @triton.jit
    def _scores(q, k, row, tokens, scale):
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        return tl.where((row < tokens)[None, :], score, float("-inf"))

    @triton.jit
    def _forward(
        q, k, v, out, q_n, q_h, q_t, k_n, k_h, k_t, v_n, v_h, v_t, o_n, o_h, o_t, heads, tokens, width, scale,
        MAIN: tl.constexpr, TAIL: tl.constexpr, WIDTH: tl.constexpr,
    ):  # fmt: skip
        image = (tl.program_id(0) // heads).to(tl.int64)
        head = tl.program_id(0) % heads
        q_0, k_0 = image * q_n + head * q_h, image * k_n + head * k_h
        v_0, o_0 = image * v_n + head * v_h, image * o_n + head * o_h
        column = tl.arange(0, WIDTH)
        main = tl.arange(0, MAIN)
        k_main = _load(k, k_0, main, k_t, column, tokens, width)
        v_main = _load(v, v_0, main, v_t, column, tokens, width)
        if TAIL > 0:
            tail = MAIN + tl.arange(0, TAIL)
            k_tail = _load(k, k_0, tail, k_t, column, tokens, width)
            v_tail = _load(v, v_0, tail, v_t, column, tokens, width)
        for part in tl.static_range(2 if TAIL > 0 else 1):
            row = main
            if part == 1:
                row = MAIN + tl.arange(0, TAIL)
            query = _load(q, q_0, row, q_t, column, tokens, width)
            score = _scores(query, k_main, main, tokens, scale)
            top = tl.max(score, 1)
            if TAIL > 0:
                score_tail = _scores(query, k_tail, tail, tokens, scale)
                top = tl.maximum(top, tl.max(score_tail, 1))
            weight = tl.exp(score - top[:, None])
            total = tl.sum(weight, 1)
            value = tl.dot(weight.to(v_main.dtype), v_main, input_precision="ieee")
            if TAIL > 0:
                weight_tail = tl.exp(score_tail - top[:, None])
                total += tl.sum(weight_tail, 1)
                value += tl.dot(weight_tail.to(v_main.dtype), v_tail, input_precision="ieee")
            _store(out, o_0, row, o_t, column, tokens, width, value / total[:, None])

    @triton.jit
    def _backward(
        q, k, v, gradient, of_q, of_k, of_v, q_n, q_h, q_t, k_n, k_h, k_t, v_n, v_h, v_t, g_n, g_h, g_t,
        o_n, o_h, o_t, heads, tokens, width, scale,
        MAIN: tl.constexpr, TAIL: tl.constexpr, WIDTH: tl.constexpr,
    ):  # fmt: skip
        image = (tl.program_id(0) // heads).to(tl.int64)
        head = tl.program_id(0) % heads
        q_0, k_0 = image * q_n + head * q_h, image * k_n + head * k_h
        v_0, g_0 = image * v_n + head * v_h, image * g_n + head * g_h
        o_0 = image * o_n + head * o_h
        column = tl.arange(0, WIDTH)
        main = tl.arange(0, MAIN)
        k_main = _load(k, k_0, main, k_t, column, tokens, width)
        v_main = _load(v, v_0, main, v_t, column, tokens, width)
        back_k = tl.zeros((MAIN, WIDTH), dtype=tl.float32)
        back_v = tl.zeros((MAIN, WIDTH), dtype=tl.float32)
        if TAIL > 0:
            tail = MAIN + tl.arange(0, TAIL)
            k_tail = _load(k, k_0, tail, k_t, column, tokens, width)
            v_tail = _load(v, v_0, tail, v_t, column, tokens, width)
            back_k_tail = tl.zeros((TAIL, WIDTH), dtype=tl.float32)
            back_v_tail = tl.zeros((TAIL, WIDTH), dtype=tl.float32)
        for part in tl.static_range(2 if TAIL > 0 else 1):
            row = main
            if part == 1:
                row = MAIN + tl.arange(0, TAIL)
            query = _load(q, q_0, row, q_t, column, tokens, width)
            pulled = _load(gradient, g_0, row, g_t, column, tokens, width)  # 0 beyond the last token
            score = _scores(query, k_main, main, tokens, scale)
            top = tl.max(score, 1)
            if TAIL > 0:
                score_tail = _scores(query, k_tail, tail, tokens, scale)
                top = tl.maximum(top, tl.max(score_tail, 1))
            weight = tl.exp(score - top[:, None])
            total = tl.sum(weight, 1)
            if TAIL > 0:
                weight_tail = tl.exp(score_tail - top[:, None])
                total += tl.sum(weight_tail, 1)
                weight_tail /= total[:, None]
            weight /= total[:, None]
            of_weight = tl.dot(pulled, tl.trans(v_main), input_precision="ieee")
            level = tl.sum(weight * of_weight, 1)
            if TAIL > 0:
                of_weight_tail = tl.dot(pulled, tl.trans(v_tail), input_precision="ieee")
                level += tl.sum(weight_tail * of_weight_tail, 1)
            of_score = (weight * (of_weight - level[:, None]) * scale).to(k_main.dtype)
            back_q = tl.dot(of_score, k_main, input_precision="ieee")
            back_k += tl.dot(tl.trans(of_score), query, input_precision="ieee")
            back_v += tl.dot(tl.trans(weight.to(k_main.dtype)), pulled, input_precision="ieee")
            if TAIL > 0:
                of_score_tail = (weight_tail * (of_weight_tail - level[:, None]) * scale).to(k_main.dtype)
                back_q += tl.dot(of_score_tail, k_tail, input_precision="ieee")
                back_k_tail += tl.dot(tl.trans(of_score_tail), query, input_precision="ieee")
                back_v_tail += tl.dot(tl.trans(weight_tail.to(k_main.dtype)), pulled, input_precision="ieee")
            _store(of_q, o_0, row, o_t, column, tokens, width, back_q)
        _store(of_k, o_0, main, o_t, column, tokens, width, back_k)
        _store(of_v, o_0, main, o_t, column, tokens, width, back_v)
        if TAIL > 0:
            _store(of_k, o_0, tail, o_t, column, tokens, width, back_k_tail)
            _store(of_v, o_0, tail, o_t, column, tokens, width, back_v_tail)
