"""Batch norm of a single image on a CPU, whose gradient torch gets wrong.

The backward pass of `batch_norm` in eval mode (seen in torch 2.15) reads a gradient that comes permuted, from
`flatten(2).transpose(1, 2)` say, as if it did not, where the batch is one image. An attack on LeViT then climbs
nowhere, image by image, and the model looks robust. Written out as the product and sum that it is, it is right.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_NORMS = (nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def single_image_batchnorm(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """Inside the block, batch norms of one image have the right gradient."""
    norms = (module for module in model.modules() if isinstance(module, _NORMS))
    concerned = any(buffer.device.type == "cpu" for norm in norms for buffer in norm.buffers())
    return _WrittenOut() if concerned else contextlib.nullcontext()


class _WrittenOut(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm:
            found = _written_out(*args, **(kwargs or {}))
            if found is not None:
                return found
        return func(*args, **(kwargs or {}))


def _written_out(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """None where torch's own is right."""
    if training or input.ndim < 4 or len(input) != 1 or not torch.is_grad_enabled():
        return None
    if running_mean is None or running_var is None:
        return None
    scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - running_mean * scale
    shape = (1, -1) + (1,) * (input.ndim - 2)
    return input * scale.view(shape) + shift.view(shape)
