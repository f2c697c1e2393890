"""How often images pass a model in a step of training, and the multiply-adds of one forward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextlib.contextmanager
def count_passes(model: nn.Module) -> Iterator[tuple[list[int], list[int]]]:
    """Counts of images that pass the model, [forwards, backwards]: in the attack, and in the update of the weights."""
    attack, update = [0, 0], [0, 0]

    def count(module: nn.Module, given: Any, out: Any) -> None:
        learns = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in model.parameters())
        counts = update if learns else attack
        counts[0] += len(given[0])
        counts[1] += len(given[0]) if learns or (torch.is_grad_enabled() and given[0].requires_grad) else 0

    handle = model.register_forward_hook(count)
    try:
        yield attack, update
    finally:
        handle.remove()


def forward_multiply_adds(module: nn.Module, x: Tensor) -> int:
    """Multiply-adds of matrix products and convolutions in one forward pass of one of the images x."""
    from torch.utils.flop_counter import FlopCounterMode  # brings Triton along

    # fused attention of a CPU is not counted; its matrix products are
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
        module(x[:1])
    return int(counted.get_total_flops()) // 2
