"""How far a network is from the differential equation that it is likened to.

A block is one Euler step of length one of x′ = F(x), F(x) = block(x) − x. Taken in m steps of length 1/m instead, with
the same F, the end point is nearer to the equation's own; the difference is the error that the one step makes.
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
    """Two of N×blocks. First ‖m steps − one‖/‖F(x)‖, each block at the network's own x; nan where sizes change.

    Second, how far the network whose every block takes m steps has by then come away from itself, relative to the size
    of its feature.
    """
    with _watched(chain, substeps, len(images), hand_on=False) as own:
        model(images)
    with _watched(chain, substeps, len(images), hand_on=True) as finer:
        model(images)
    errors = [_ratio(fine - one, one - x) for x, one, fine in own]
    drifts = [_ratio(away[2] - one[1], one[1]) for one, away in zip(own, finer, strict=True)]
    return torch.stack(errors, dim=1), torch.stack(drifts, dim=1)


def _ratio(difference: Tensor, size: Tensor) -> Tensor:
    return difference.norm(dim=1) / size.norm(dim=1).clamp_min(torch.finfo(size.dtype).tiny)


@contextlib.contextmanager
def _watched(chain: Chain, substeps: int, count: int, *, hand_on: bool) -> Iterator[list[tuple[Tensor, ...]]]:
    """While the model runs: (x, one step, m steps) of every block, N×n. `hand_on`: of which the last goes on."""
    found: list[tuple[Tensor, ...]] = []

    def look(layer: BlockLayer, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        own, key = first_of(output), layer.carrier
        x = args[key] if isinstance(key, int) else kwargs[key]
        fine = _in_steps(layer, module, args, kwargs, x, substeps) if layer.square else own
        x = x if layer.square else torch.full_like(own, torch.nan)
        found.append(tuple(one.reshape(count, -1).clone() for one in (x, own, fine)))
        if not hand_on:
            return None
        return type(output)([fine, *output[1:]]) if isinstance(output, tuple | list) else fine

    with contextlib.ExitStack() as hooks:
        for layer in chain.layers:
            hook = layer.block.module.register_forward_hook(functools.partial(look, layer), with_kwargs=True)
            hooks.callback(hook.remove)
        yield found


def _in_steps(layer: BlockLayer, module: nn.Module, args: Any, kwargs: Any, x: Tensor, substeps: int) -> Tensor:
    for _ in range(substeps):
        given, named = replaced(args, kwargs, layer.carrier, lambda _, x=x: x.clone())  # type: ignore[misc]
        x = x + (first_of(module.forward(*given, **named)) - x) / substeps
    return x
