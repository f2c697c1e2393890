"""The shortest displacement from an image to a hyperplane {z : w·z = b} within the box of valid pixels.

A linearised classifier changes its prediction on such a plane (Croce and Hein, "Minimally distorted adversarial
examples with a fast adaptive boundary attack", 2020). For each norm there is a function of the image, `w` and the `gap`
b − w·image that returns the displacement. The caller passes the gap (N values) because it knows it more precisely than
a difference of two large sums. Where the plane does not meet the box, the result is the corner nearest to the plane.

Every pixel moves only towards the plane, up to its bound. In linf all pixels move by the same λ, in l2 by λ|w|; the
gain is concave and piecewise linear in λ, so Newton's method from the left increases towards the root and never
passes it. In l1 pixels move one after the other, those with the largest weight first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hardtack.threats import balls
from hardtack.threats.balls import BALLS

# The dual norm, in which a gradient is measured: a step of length eps gains at most eps times that norm.
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}

# Six are usually enough; where the plane only just meets the box, too few steps stop a thousandth before it.
_NEWTON_STEPS = 12
_TINY = 1e-30
_HUGE = 1e30


def _directions(x: Tensor, w: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of: the direction of every pixel, its weight in [0,1], its room; and the gap in units of that weight."""
    towards = w.flatten(1) * torch.where(gap < 0, -1.0, 1.0).to(w.dtype)[:, None]
    weight = towards.abs()
    # weights of 1e-25 squared are 0 in fp32
    scale = weight.amax(dim=1, keepdim=True).clamp_min(_TINY)
    room = torch.where(towards > 0, 1 - x.flatten(1), x.flatten(1)) * (weight > 0)
    return towards.sign(), weight / scale, room, gap.abs()[:, None] / scale


def _moves(speed: Tensor, weight: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """How far each pixel moves: min(λ·speed, room), with the λ at which Σ weight·move equals the gap."""
    gain, slope = weight * room, weight * speed
    reached = gap <= gain.sum(dim=1, keepdim=True)
    factor = (gap / slope.sum(dim=1, keepdim=True).clamp_min(_TINY)).clamp(max=_HUGE)
    for _ in range(_NEWTON_STEPS):
        free = speed * factor < room
        used, left = _split(gain, slope, free)
        taken, rise = used.sum(dim=1, keepdim=True), left.sum(dim=1, keepdim=True)
        before, factor = factor, torch.maximum(factor, ((gap - taken) / rise.clamp_min(_TINY)).clamp(max=_HUGE))
        if balls.can_look(factor) and torch.equal(factor, before):  # so would all further steps leave it
            break
    return torch.where(reached, torch.minimum(factor * speed, room), room)


def _split(gain: Tensor, slope: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """The gain of the pixels that are not free, the slope of those that are, and zeros elsewhere.

    All values are finite, and a CPU multiplies six times as fast as it selects.
    """
    if gain.device.type == "cpu":
        return gain * ~free, slope * free
    return torch.where(free, 0, gain), torch.where(free, slope, 0)


def linf_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _directions(x, w, gap)
    return (direction * _moves(direction.abs(), weight, room, gap)).reshape(x.shape)


def l2_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _directions(x, w, gap)
    return (direction * _moves(weight, weight, room, gap)).reshape(x.shape)


def l1_to_plane(x: Tensor, w: Tensor, gap: Tensor) -> Tensor:
    direction, weight, room, gap = _directions(x, w, gap)
    worth, order = weight.sort(dim=1, descending=True)
    room = room.gather(1, order)
    gained = (worth * room).cumsum(dim=1) - worth * room  # by the pixels before this one
    moved = torch.minimum((gap - gained).clamp_min(0) / worth.clamp_min(_TINY), room)
    return (direction * torch.zeros_like(moved).scatter(1, order, moved)).reshape(x.shape)


TO_PLANE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linf": linf_to_plane,
    "l2": l2_to_plane,
    "l1": l1_to_plane,
}


def distance_to_plane(norm: str, w: Tensor, gap: Tensor) -> Tensor:
    """The distance to the plane without the box: |gap| over the dual norm of `w`, one value per image."""
    return gap.abs() / BALLS[DUAL[norm]].size(w).clamp_min(1e-12)
