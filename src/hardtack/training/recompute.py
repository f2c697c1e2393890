"""Gradient checkpointing: the activations of a block are dropped and computed again in the backward pass.

This costs one more forward pass of the blocks and saves most of the memory of training. Attacks in the training loop
take their gradients in the same way, except compiled ones, which keep their activations. Results are the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hardtack.base.errors import UserError
from hardtack.models import find_blocks
from hardtack.training.sharpness import buffers_restored


def checkpoint_blocks(model: nn.Module) -> None:
    """Make every block of the model keep only its inputs for the backward pass."""
    blocks = [block.module for block in find_blocks(model) if any(True for _ in block.module.parameters())]
    if not blocks:
        raise UserError("train.checkpoint_blocks: hardtack recognises no blocks in this model; leave it false")
    for block in blocks:
        block.forward = _Recomputed(block)


class _Recomputed:
    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self.forward: Callable[..., Any] = type(block).forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        function = functools.partial(self.forward, self.block)
        if not torch.is_grad_enabled():
            return function(*inputs, **named)
        if torch.compiler.is_compiling():  # a traced graph writes its statistics once, even where it computes twice
            if not any(parameter.requires_grad for parameter in self.block.parameters()):
                return function(*inputs, **named)  # compiled attacks cannot take gradients through checkpoints
            return checkpoint(function, *inputs, use_reentrant=False, **named)
        contexts = lambda: (contextlib.nullcontext(), buffers_restored(self.block))  # noqa: E731
        return checkpoint(function, *inputs, use_reentrant=False, context_fn=contexts, **named)
