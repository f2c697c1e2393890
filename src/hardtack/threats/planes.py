"""The shortest way from an image to a hyperplane {z : w·z = b} without leaving the box of valid pixels.

A linearised classifier changes its answer on such a plane (Croce and Hein, "Minimally distorted adversarial
examples with a fast adaptive boundary attack", 2020). For each norm a function of the image, `w` and the `gap`
b − w·image (N values: whoever linearises at the image knows it better than a difference of two large sums) that
returns the displacement. Where the plane misses the box the displacement ends in the corner that comes nearest.

Every pixel may move only towards the plane, until it meets a face of the box. In linf all move by the same λ, in
l2 by λ|w|; what that gains is concave and piecewise linear in λ, so Newton's method from the left climbs to the
root without ever passing it. In l1 pixels move one after the other, those with the largest weight first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hardtack.threats.balls import BALLS

# The norm in which a gradient is measured: a step of length eps gains at most eps times it.
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}

# Six usually do; a step too few, where the plane barely cuts the box, only stops short of it by a thousandth.
_NEWTON_STEPS = 12
_TINY = 1e-30
_HUGE = 1e30


def _way(x: Tensor, w: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of: the direction of every pixel, its weight in [0,1], its room; and the gap in units of that weight."""
    towards = w.flatten(1) * torch.where(gap < 0, -1.0, 1.0).to(w.dtype)[:, None]
    weight = towards.abs()
    # weights of 1e-25 squared are 0 in fp32
    scale = weight.amax(dim=1, keepdim=True).clamp_min(_TINY)
    room = torch.where(towards > 0, 1 - x.flatten(1), x.flatten(1)) * (weight > 0)
    return towards.sign(), weight / scale, room, gap.abs()[:, None] / scale


def _climb(speed: Tensor, weight: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """How far each pixel goes, min(λ·speed, room), with the λ at which Σ weight·way fills the gap."""
    gain, slope = weight * room, weight * speed
    reached = gap <= gain.sum(dim=1, keepdim=True)
    factor = (gap / slope.sum(dim=1, keepdim=True).clamp_min(_TINY)).clamp(max=_HUGE)
    for _ in range(_NEWTON_STEPS):
        free = speed * factor < room
        taken = torch.where(free, 0, gain).sum(dim=1, keepdim=True)
        rise = torch.where(free, slope, 0).sum(dim=1, keepdim=True)
        factor = torch.maximum(factor, ((gap - taken) / rise.clamp_min(_TINY)).clamp(max=_HUGE))
    return torch.where(reached, torch.minimum(factor * speed, room), room)


def linf_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _way(x, w, gap)
    return (direction * _climb(direction.abs(), weight, room, gap)).reshape(x.shape)


def l2_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _way(x, w, gap)
    return (direction * _climb(weight, weight, room, gap)).reshape(x.shape)


def l1_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _way(x, w, gap)
    worth, order = weight.sort(dim=1, descending=True)
    room = room.gather(1, order)
    gained = (worth * room).cumsum(dim=1) - worth * room  # before it is this pixel's turn
    moved = torch.minimum((gap - gained).clamp_min(0) / worth.clamp_min(_TINY), room)
    return (direction * torch.zeros_like(moved).scatter(1, order, moved)).reshape(x.shape)


TO_PLANE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linf": linf_to_plane,
    "l2": l2_to_plane,
    "l1": l1_to_plane,
}


def distance_to_plane(norm: str, w: Tensor, gap: Tensor) -> Tensor:
    """How far the plane is if there were no box: |gap| over the dual norm of `w`, one value per image."""
    return gap.abs() / BALLS[DUAL[norm]].size(w).clamp_min(1e-12)
