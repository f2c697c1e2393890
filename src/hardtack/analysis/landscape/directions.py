"""Random directions in weight space with the norm of the weights, filter by filter.

Li et al. 2018: each filter (a kernel, or the row of a matrix) of a Gaussian direction is rescaled to the norm of the
trained filter. Networks that compute the same function and differ only in the scale of their layers then have the same
landscape. Biases, normalisation weights and other scales do not change.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.models.parts import short_name

Direction = dict[str, Tensor]  # by parameter name; parameters that do not change are left out


def filter_direction(model: nn.Module, *, seed: int, number: int) -> Direction:
    """Direction `number` of this seed. The values for a parameter depend on its name, not on the other parameters."""
    direction = {name: _part(name, weight, seed, number) for name, weight in model.named_parameters() if _moves(weight)}
    if not direction:
        raise UserError("this model has no linear or convolutional layers: there are no weights to move")
    return direction


def cosine(direction: Direction, other: Direction) -> float:
    """The cosine of the angle between two directions of one model."""
    product = sum(float((direction[name].double() * other[name].double()).sum()) for name in direction)
    return product / (length(direction) * length(other))


def length(direction: Direction) -> float:
    return sum(float(part.double().square().sum()) for part in direction.values()) ** 0.5


def gaussian(name: str, shape: torch.Size, *words: int) -> Tensor:
    """Standard normal numbers (float32, on the CPU), determined by the parameter's name and the words."""
    digest = hashlib.sha256(short_name(name).encode()).digest()
    keys = randomness.make_keys(torch.tensor([int.from_bytes(digest[:7], "big")]), *words)
    return randomness.normal(keys, tuple(shape))[0]


def _moves(weight: Tensor) -> bool:
    """Whether the direction changes this parameter. A filter of a single weight is a scale and does not change."""
    return weight.ndim > 1 and weight[0].numel() > 1 and weight.is_floating_point()


def _part(name: str, weight: Tensor, seed: int, number: int) -> Tensor:
    drawn = gaussian(name, weight.shape, seed, number).to(weight.device)
    across = tuple(range(1, weight.ndim))
    trained, random = (
        torch.linalg.vector_norm(tensor, dim=across, keepdim=True) for tensor in (weight.detach(), drawn)
    )
    return (drawn * (trained / random.clamp_min(1e-30))).to(weight.dtype)
