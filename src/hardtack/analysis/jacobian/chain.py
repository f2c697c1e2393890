"""A network as a chain of steps, one block after the other, through which a perturbation is tracked."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.analysis.jacobian.block_parts import BlockLayer, Piece, between_piece, block_piece, cut, first_of, survey


@dataclass(frozen=True)
class Chain:
    """`steps` lead from the input of the first block to the output of the last: blocks, and operations between stages.

    `layers` are the blocks. The chain ends early before the block `lost` if the input of that block does not come from
    the previous one (CaiT's class token).
    """

    steps: tuple[Piece, ...]
    layers: tuple[BlockLayer, ...]
    lost: str = ""


def find_chain(model: nn.Module, images: Tensor) -> Chain:
    steps: list[Piece] = []
    layers: list[BlockLayer] = []
    for layer in survey(model, images):
        if layers and not layer.joined:
            if not cut(model, images[:1], layers[-1], layer, after=True, before=True)[1].requires_grad:
                return Chain(tuple(steps), tuple(layers), lost=layer.name)
            steps.append(between_piece(model, layers[-1], layer))
        steps.append(block_piece(model, layer))
        layers.append(layer)
    return Chain(tuple(steps), tuple(layers))


@torch.no_grad()
def stations(model: nn.Module, chain: Chain, images: Tensor) -> list[Tensor]:
    """The features before the first step and after every step, N×n each."""
    features: list[Tensor] = []

    def enter(layer: BlockLayer, first: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if first or not layer.joined:
            features.append(
                _flat(args[layer.carrier] if isinstance(layer.carrier, int) else kwargs[layer.carrier], images)
            )

    with contextlib.ExitStack() as hooks:
        for number, layer in enumerate(chain.layers):
            module = layer.block.module

            def before(
                module: nn.Module, args: Any, kwargs: Any, layer: BlockLayer = layer, first: bool = not number
            ) -> None:
                enter(layer, first, args, kwargs)

            hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            hooks.callback(
                module.register_forward_hook(
                    lambda module, args, out: features.append(_flat(first_of(out), images))
                ).remove
            )
        model(images)
    return features


def _flat(value: Tensor, images: Tensor) -> Tensor:
    return value.detach().reshape(len(images), -1).clone()
