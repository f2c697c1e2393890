"""Layers of a model that training runs as they are, by faster kernels: a mode for the time a CUDA graph is recorded.

    with FastLayers():
        loss = objective(x, y)["loss"]

Inside the block layer norm and the bias gradients of linear layers are our kernels (kernels.py) on a GPU, and attention
over short sequences is ours too (attention_kernel.py). Under autocast the result of layer norm has autocast's
type at once, because what follows it would cast it. Modules, parameters and hooks stay as they are.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from hardtack.base.kernel_launch import compile_ahead

SHORT = 128
"""Tokens; up to here the memory-efficient attention kernel is the fastest on an H200."""
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


class FastLayers(TorchFunctionMode):
    """See the module. Where a kernel does not fit a call, the call is PyTorch's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.layer_norm:
            return _layer_norm(*args, **kwargs)
        if func is F.linear:
            return _linear(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        return func(*args, **kwargs)


def compile_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Compile the kernels that updates of the model's layers need under autocast to this type, all of them together."""
    from hardtack.models import kernels

    norms = {module.normalized_shape[0] for module in model.modules() if isinstance(module, nn.LayerNorm)}
    outputs = {module.out_features for module in model.modules() if isinstance(module, nn.Linear)}
    device = next(model.parameters()).device
    if device.type != "cuda" or not kernels.available():
        return

    def update() -> None:
        for width, type_ in itertools.product(norms, (torch.float32, dtype)):
            if width <= kernels.WIDEST:
                x = torch.zeros(16, width, dtype=type_, device=device, requires_grad=True)
                weight, bias = torch.ones(2, width, device=device).requires_grad_()
                torch.autograd.grad(kernels.layer_norm(x, weight, bias, 1e-5, dtype).sum(), (x, weight, bias))
        for width in outputs:
            kernels.column_sums(torch.zeros(16, width, dtype=dtype, device=device))

    compile_ahead(update)


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    from hardtack.models import kernels  # imports Triton, which takes long

    fits = len(normalized_shape) == 1 and normalized_shape[0] <= kernels.WIDEST and weight is not None
    if not (
        fits and input.is_cuda and input.dtype in (torch.float32, torch.bfloat16, torch.float16) and kernels.available()
    ):
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    assert weight is not None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else input.dtype
    return kernels.layer_norm(input, weight, bias, eps, dtype)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    from hardtack.models import kernels

    trains = torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad))
    if not (input.is_cuda and torch.is_autocast_enabled("cuda") and trains and kernels.available()):
        return F.linear(input, weight, bias)
    return kernels.linear(input, weight, bias, torch.get_autocast_dtype("cuda"))


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, **named: Any,
) -> Tensor:  # fmt: skip
    from hardtack.models import attention_kernel

    if attn_mask is None and not dropout_p and not is_causal and attention_kernel.fits(query, key, value):
        return attention_kernel.attention(query, key, value, query.shape[-1] ** -0.5 if scale is None else scale)
    rest = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, **named}
    if key.shape[-2] > SHORT:
        return F.scaled_dot_product_attention(query, key, value, **rest)
    with sdpa_kernel(BACKENDS, set_priority=True):
        return F.scaled_dot_product_attention(query, key, value, **rest)
