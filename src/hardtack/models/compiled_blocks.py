"""The repeated blocks of a model through torch.compile: one short compilation serves all blocks of a kind."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn


def compile_blocks(model: nn.Module) -> int:
    """Compile the repeated blocks of a model, in place. Returns how many there are."""
    blocks = repeated_blocks(model)
    for block in blocks:
        block.compile(dynamic=False)
    return len(blocks)


class CompiledBlocks:
    """The repeated blocks of a model, compiled while this is entered and as they are otherwise.

    Between, the model can be copied, validated and saved without compiling for other shapes.
    """

    def __init__(self, model: nn.Module) -> None:
        self._blocks = repeated_blocks(model)
        self._compiled = [torch.compile(block._call_impl, dynamic=False) for block in self._blocks]

    def __enter__(self) -> None:
        for block, call in zip(self._blocks, self._compiled, strict=True):
            block._compiled_call_impl = call

    def __exit__(self, *error: object) -> None:
        for block in self._blocks:
            block._compiled_call_impl = None


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost modules with parameters of which there are several of one class in a sequence."""
    kinds = Counter(type(child) for parent in model.modules() for child in _series(parent))
    blocks = [child for parent in model.modules() for child in _series(parent) if kinds[type(child)] >= 2]
    inner = {id(part) for block in blocks for part in block.modules() if part is not block}
    return [block for block in blocks if id(block) not in inner and any(True for _ in block.parameters())]


def _series(parent: nn.Module) -> list[nn.Module]:
    return list(parent.children()) if isinstance(parent, nn.Sequential | nn.ModuleList) else []
