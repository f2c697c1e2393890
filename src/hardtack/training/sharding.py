"""Weights, gradients and optimiser state split over the processes of torchrun (FSDP2), for models that fill a GPU.

The weights of a block are gathered while it computes. Validation, export and saved states use whole weights: files are
the same as those of one process, and a run may continue with another number of processes. Statistics of batch norm are
those of the first process.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models import find_blocks
from hardtack.objectives.contract import Objective


def shard(model: nn.Module, runtime: Runtime) -> None:
    """Split the parameters of the model, block by block. Where the run compiles, each block is compiled separately."""
    # this part of torch takes most of a second to import, and few runs need it
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(runtime.torch_device.type, (runtime.world_size,))
    half = torch.bfloat16 if runtime.precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in find_blocks(model):
        if runtime.compiles:
            block.module.compile(dynamic=False)
        fully_shard(block.module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def split_models(models: Sequence[nn.Module], objective: Objective, runtime: Runtime) -> nn.Module:
    """Split the weights of the models over processes; returns a copy of the first one that can hold all weights."""
    if objective.optimised is not objective:
        raise UserError("runtime.shard is for objectives that train the model only, and this one trains more")
    runtime.join()
    unsplit = copy.deepcopy(models[0]).eval()
    for model in models:
        shard(model, runtime)
    return unsplit


def is_split(value: Any) -> bool:
    """Whether this is a DTensor, of which each process has a part."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def whole(value: Any) -> Any:
    """Nested tensors with every split one gathered; every process must call this at the same time."""
    if is_split(value):
        return value.full_tensor()
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


def split_like(state: dict[str, Tensor], module: nn.Module) -> dict[str, Any]:
    """A whole state, split in the same way as the state of the module."""
    mine = module.state_dict()
    return {name: _split(value, mine[name]) if name in mine else value for name, value in state.items()}


def split_moments(optimiser: torch.optim.Optimizer) -> None:
    """After a whole state was loaded: split the moments of every split parameter in the same way."""
    for parameter, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                moments[name] = _split(value, parameter)


def _split(value: Tensor, like: Any) -> Tensor:
    if not is_split(like) or is_split(value):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


@torch.no_grad()
def fill(copy: nn.Module, source: nn.Module) -> nn.Module:
    """Copy the whole weights of a split model into a model that is not split, with the buffers of the first process."""
    for mine, split in zip(copy.parameters(), source.parameters(), strict=True):
        mine.copy_(whole(split.detach()))
    for buffer, theirs in zip(copy.buffers(), source.buffers(), strict=True):
        buffer.copy_(theirs)
        torch.distributed.broadcast(buffer, src=0)
    return copy


def any_process(flags: Sequence[bool], device: torch.device) -> tuple[bool, ...]:
    """Each flag is true if it is true on any process; every process must call this at the same time."""
    votes = torch.tensor([int(flag) for flag in flags], device=device)
    torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MAX)
    return tuple(bool(vote) for vote in votes)
