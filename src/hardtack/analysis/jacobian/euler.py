"""How well the blocks of a network approximate the solution of the differential equation x′ = F(x).

A residual block is one Euler step of length 1 with F(x) = block(x) − x. With m steps of length 1/m and the same F the
result is closer to the exact solution. The difference between the two results is the error of the single step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.analysis.jacobian.block_parts import BlockLayer, first_of, replaced
from hardtack.analysis.jacobian.chain import Chain


@torch.no_grad()
def euler_errors(model: nn.Module, chain: Chain, images: Tensor, substeps: int) -> tuple[Tensor, Tensor]:
    """The errors and the drifts, N×blocks each.

    The error of a block is ‖m steps − one step‖/‖F(x)‖ at the feature x of the unchanged network; it is nan for a block
    that changes the size of the feature. The drift is the distance between the features after the block with m steps in
    every block and with one step, relative to the norm of the latter.
    """
    with _watched(chain, substeps, len(images), hand_on=False) as own:
        model(images)
    with _watched(chain, substeps, len(images), hand_on=True) as finer:
        model(images)
    errors = [_ratio(in_substeps - output, output - x) for x, output, in_substeps in own]
    drifts = [_ratio(fine[2] - coarse[1], coarse[1]) for coarse, fine in zip(own, finer, strict=True)]
    return torch.stack(errors, dim=1), torch.stack(drifts, dim=1)


def _ratio(difference: Tensor, size: Tensor) -> Tensor:
    return difference.norm(dim=1) / size.norm(dim=1).clamp_min(torch.finfo(size.dtype).tiny)


@contextlib.contextmanager
def _watched(chain: Chain, substeps: int, count: int, *, hand_on: bool) -> Iterator[list[tuple[Tensor, ...]]]:
    """Record (x, one step, m steps) of every block, N×n each, during a forward pass.

    With `hand_on` the result of m steps replaces the output of the block.
    """
    steps: list[tuple[Tensor, ...]] = []

    def look(layer: BlockLayer, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        own, key = first_of(output), layer.carrier
        x = args[key] if isinstance(key, int) else kwargs[key]
        fine = _in_steps(layer, module, args, kwargs, x, substeps) if layer.square else own
        x = x if layer.square else torch.full_like(own, torch.nan)
        steps.append(tuple(feature.reshape(count, -1).clone() for feature in (x, own, fine)))
        if not hand_on:
            return None
        return type(output)([fine, *output[1:]]) if isinstance(output, tuple | list) else fine

    with contextlib.ExitStack() as hooks:
        for layer in chain.layers:
            hook = layer.block.module.register_forward_hook(functools.partial(look, layer), with_kwargs=True)
            hooks.callback(hook.remove)
        yield steps


def _in_steps(layer: BlockLayer, module: nn.Module, args: Any, kwargs: Any, x: Tensor, substeps: int) -> Tensor:
    for _ in range(substeps):
        positional, named = replaced(args, kwargs, layer.carrier, lambda _, x=x: x.clone())  # type: ignore[misc]
        x = x + (first_of(module.forward(*positional, **named)) - x) / substeps
    return x
