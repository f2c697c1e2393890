"""Layers of a frozen model by the fastest kernels of a CPU; only what enters a layer has a gradient.

Linear layers call oneDNN with weights that it has laid out once. On an AMD processor a small ViT is nearly twice as
fast with it as with MKL, which torch calls for fp32, and in bf16, where there are instructions for it, three times
(benchmarks/cpu_passes.py). Attention in bf16 is written as products of matrices: torch's own kernel is slow there on
the way back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

LONGEST = 512
"""Tokens; the scores of longer sequences take too much memory."""
_FEWEST = {"fp32": 50_000, "bf16": 1_000_000}
"""Models with fewer weights are not faster for a copy: other operations take their time."""


def available() -> bool:
    """Whether this build of torch has oneDNN's linear layers."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def has_bf16() -> bool:
    """Whether this processor multiplies matrices of bf16 by instructions of its own."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    known = [getattr(torch.cpu, name, None) for name in checks]  # both are private: a later torch may lack them
    return available() and any(check() for check in known if check is not None)


def saves_time(model: nn.Module, dtype: torch.dtype | None) -> bool:
    """Whether a copy of the model with weights in `dtype` (None: as they are) is worth making."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    return available() and weights >= _FEWEST["fp32" if dtype is None else "bf16"]


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a frozen model, in place. Their types must not change afterwards."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear and not child._forward_hooks and not child._forward_pre_hooks:
                setattr(parent, name, _PackedLinear(child))


class _PackedLinear(nn.Module):
    """A linear layer with fixed weights, and these as oneDNN wants them, for either direction."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach()
        reorder = torch.ops.mkldnn._reorder_linear_weight
        self._forth, self._back = reorder(weight.contiguous(), None), reorder(weight.t().contiguous(), None)

    def forward(self, x: Tensor) -> Tensor:
        if not x.numel() or x.dtype != self.weight.dtype:  # torch says what is wrong with other types
            return F.linear(x, self.weight, self.bias)
        if torch.is_grad_enabled() and x.requires_grad:
            out: Tensor = _Linear.apply(x, self._forth, self._back, self.bias)
            return out
        return _linear(x, self._forth, self.bias)


def _linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), packed, bias, "none", [], "")
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forth: Tensor, back: Tensor, bias: Tensor | None) -> Tensor:
        ctx.back = back
        return _linear(x, forth, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _linear(gradients[0], ctx.back, None), None, None, None


# ---------------------------------------------------------------- attention


class OwnAttention(TorchFunctionMode):
    """Inside the block attention over bf16 is `attention`, where it fits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and len(args) == 3 and set(kwargs) <= _PLAIN and fits(*args):
            other = kwargs.get("attn_mask") is not None or kwargs.get("dropout_p") or kwargs.get("is_causal")
            if not other:
                q, k, v = args
                scale = kwargs.get("scale")
                return attention(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale)
        return func(*args, **kwargs)


_PLAIN = {"attn_mask", "dropout_p", "is_causal", "scale"}


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `attention` takes these N×heads×T×d tensors."""
    alike = q.dim() == 4 and q.shape == k.shape == v.shape and q.dtype == k.dtype == v.dtype == torch.bfloat16
    return alike and q.device.type == "cpu" and q.shape[2] <= LONGEST and q.numel() > 0


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(q kᵀ · scale) v, N×heads×T×d; the products are in bf16, the softmax in fp32."""
    out: Tensor = _Attention.apply(q, k, v, scale)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        shape = q.shape
        q, k, v = (each.reshape(-1, *shape[2:]) for each in (q, k, v))
        weights = torch.bmm(q, k.transpose(1, 2)).float().mul_(scale).softmax(dim=-1).to(q.dtype)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale = scale
        return torch.bmm(weights, v).view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        shape, dtype = gradients[0].shape, q.dtype
        gradient = gradients[0].reshape(q.shape)
        of_v = torch.bmm(weights.transpose(1, 2), gradient)
        of_weights, weights = torch.bmm(gradient, v.transpose(1, 2)).float(), weights.float()
        of_scores = weights * (of_weights - (weights * of_weights).sum(dim=-1, keepdim=True)) * ctx.scale
        of_scores = of_scores.to(dtype)
        of_q, of_k = torch.bmm(of_scores, k), torch.bmm(of_scores.transpose(1, 2), q)
        return of_q.view(shape), of_k.view(shape), of_v.view(shape), None
