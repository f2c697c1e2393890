"""The geometry an adversary lives in: lp balls around an image, cut by the box of valid pixels.

For each norm four functions: `size` of a perturbation, a `random_point` of the ball, the `steepest_step`
that raises a linear loss most per unit of the norm, and `project`, the exact Euclidean projection onto
ball ∩ [0,1]^d (clipping after an ordinary l1 or l2 projection is feasible but not the nearest point: Croce
and Hein, "Mind the box", 2021). Everything is batched, runs on any device, and never waits for it.

`x` is the clean N×C×H×W image in [0,1]; `eps` is a number or a tensor of one or N values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hardtack.base import randomness

Eps = float | Tensor

# Newton's method below stops moving once the right linear piece is found, in practice within six steps;
# a step too few only leaves the point inside the ball, never outside.
_NEWTON_STEPS = 12
_BISECTION_STEPS = 30
_TINY = 1e-30


@dataclass(frozen=True)
class Ball:
    """A norm, as the functions an attack needs of it."""

    norm: str
    size: Callable[[Tensor], Tensor]
    random_point: Callable[[Tensor, Eps, Tensor], Tensor]
    steepest_step: Callable[[Tensor, Tensor, Eps], Tensor]
    project: Callable[[Tensor, Tensor, Eps], Tensor]


def _rows(x: Tensor) -> Tensor:
    return x.flatten(1)


def _like(rows: Tensor, x: Tensor) -> Tensor:
    return rows.reshape(x.shape)


def _column(eps: Eps, x: Tensor) -> Tensor:
    if isinstance(eps, Tensor):
        return eps.to(x).reshape(-1, 1)
    return torch.full((1, 1), eps, dtype=x.dtype, device=x.device)  # made there: a copy could not be captured


def _room(step: Tensor, x: Tensor) -> Tensor:
    """How far each pixel may move in the direction of `step` before it leaves [0,1]."""
    return torch.where(step > 0, 1 - x, x)


# ---------------------------------------------------------------- linf


def linf_size(delta: Tensor) -> Tensor:
    return _rows(delta).abs().amax(dim=1)


def linf_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    noise = _rows(randomness.uniform(keys, tuple(x.shape[1:]))) * 2 - 1
    return (x + _like(noise * _column(eps, x), x)).clamp(0, 1)


def linf_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    return _like(_rows(gradient.sign()) * _column(length, gradient), gradient)


def linf_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    radius = _column(eps, x).reshape(-1, *[1] * (x.dim() - 1))
    return torch.minimum(torch.maximum(z, x - radius), x + radius).clamp(0, 1)


# ---------------------------------------------------------------- l2


def l2_size(delta: Tensor) -> Tensor:
    return _rows(delta).norm(dim=1)


def l2_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    """Uniform in the ball: a Gaussian direction at radius eps · u^(1/d), then clipped to the box."""
    direction = _rows(randomness.normal(keys, tuple(x.shape[1:])))
    radius = randomness.uniform(keys, (1,), stream=1) ** (1 / direction.shape[1])
    step = direction / direction.norm(dim=1, keepdim=True).clamp_min(_TINY) * radius * _column(eps, x)
    return (x + _like(step, x)).clamp(0, 1)


def l2_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    rows = _rows(gradient)
    # dividing by the largest entry first keeps tiny gradients (1e-25 squared is 0 in fp32) from vanishing
    rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(_TINY)
    return _like(rows / rows.norm(dim=1, keepdim=True).clamp_min(_TINY) * _column(length, gradient), gradient)


def l2_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """The solution is x + clip(s·d, box) with d = z − x and the largest s ≤ 1 that stays in the ball.

    In t = s² the squared length Σ min(d²t, room²) is concave and piecewise linear, so Newton's method from
    the left climbs to the root without ever passing it.
    """
    delta = _rows(z - x)
    room, squared = _room(delta, _rows(x)) ** 2, delta**2
    budget = _column(eps, x) ** 2
    t = (budget / squared.sum(dim=1, keepdim=True).clamp_min(_TINY)).clamp(max=1)
    for _ in range(_NEWTON_STEPS):
        free = squared * t < room
        taken = torch.where(free, 0, room).sum(dim=1, keepdim=True)
        slope = torch.where(free, squared, 0).sum(dim=1, keepdim=True)
        t = torch.maximum(t, ((budget - taken) / slope.clamp_min(_TINY)).clamp(max=1))
    return (x + _like(delta * t.sqrt(), x)).clamp(0, 1)


# ---------------------------------------------------------------- l1


def l1_size(delta: Tensor) -> Tensor:
    return _rows(delta).abs().sum(dim=1)


def l1_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    """Uniform in the ball: d signed exponentials over the sum of d + 1 of them, then clipped to the box."""
    shape = tuple(x.shape[1:])
    exponential = -torch.log1p(-_rows(randomness.uniform(keys, shape)))
    spare = -torch.log1p(-randomness.uniform(keys, (1,), stream=1))
    sign = _rows(randomness.bits(keys, shape, stream=2) & 1).to(x.dtype) * 2 - 1
    total = exponential.sum(dim=1, keepdim=True) + spare
    return (x + _like(sign * exponential / total.clamp_min(_TINY) * _column(eps, x), x)).clamp(0, 1)


def l1_step(gradient: Tensor, x_adv: Tensor, length: Eps, density: float = 0.01) -> Tensor:
    """The largest rise of a linear loss within the box when no pixel takes more than an equal share.

    The true steepest step moves one pixel; sharing it between a `density` of all pixels makes progress in
    fewer passes (Tramèr and Boneh, 2019, whose hundredth part it is: more of them fool fewer images). What a
    pixel near the face of the box cannot take goes to the next in line: after a projection the best pixels
    sit just off the face, and would swallow every step.
    """
    rows, budget = _rows(gradient), _column(length, gradient)
    worth, order = rows.abs().sort(dim=1, descending=True)
    share = budget / max(1, round(density * rows.shape[1]))
    most = torch.minimum(_room(rows, _rows(x_adv)).gather(1, order), share) * (worth > 0)
    spent = most.cumsum(dim=1) - most
    moved = torch.minimum(most, (budget - spent).clamp_min(0))
    return _like(rows.sign() * torch.zeros_like(rows).scatter(1, order, moved), gradient)


def l1_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """The solution is x + sign(d)·clip(|d| − λ, 0, room) with d = z − x and the smallest λ ≥ 0 in the ball.

    The length is piecewise linear and falling in λ: bisection brackets the piece, a secant step lands on it.
    """
    budget = _column(eps, x)
    if x.is_cuda and not torch.compiler.is_compiling():
        from hardtack.threats import l1_kernel

        if l1_kernel.fits(x):
            return l1_kernel.project(z, x, budget, steps=_BISECTION_STEPS, tiny=_TINY).clamp(0, 1)
    delta = _rows(z - x)
    magnitude, room = delta.abs(), _room(delta, _rows(x))

    def length(shrink: Tensor) -> Tensor:
        return torch.minimum((magnitude - shrink).clamp_min(0), room).sum(dim=1, keepdim=True)

    low = torch.zeros_like(budget.expand(len(x), 1))
    high = magnitude.amax(dim=1, keepdim=True)
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        outside = length(middle) > budget
        low, high = torch.where(outside, middle, low), torch.where(outside, high, middle)
    over, under = length(low) - budget, budget - length(high)
    secant = low + (high - low) * over / (over + under).clamp_min(_TINY)
    moved = torch.minimum((magnitude - torch.where(over <= 0, low, secant)).clamp_min(0), room)
    # far from the ball fp32 cannot resolve λ; what is left over the budget is scaled away
    moved = moved * (budget / moved.sum(dim=1, keepdim=True).clamp_min(_TINY)).clamp(max=1)
    # adding x rounds every pixel by up to a quarter of eps, and over 150,000 pixels that leaves the ball
    moved = torch.where(over > 0, (moved - torch.finfo(x.dtype).eps / 4).clamp_min(0), moved)
    return (x + _like(delta.sign() * moved, x)).clamp(0, 1)


def l1_dense_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    """Along the gradient itself, scaled to the length: every pixel moves a little, and a linear loss rises little."""
    rows = _rows(gradient)
    return _like(rows / rows.abs().sum(dim=1, keepdim=True).clamp_min(_TINY) * _column(length, gradient), gradient)


def l1_scale(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """Into the ball by shrinking all pixels alike, then into the box: feasible, far from the nearest point."""
    delta = _rows(z - x)
    most = _column(eps, x) * (1 - 1e-6)  # rounding over many pixels must not leave the ball
    shrink = (most / delta.abs().sum(dim=1, keepdim=True).clamp_min(_TINY)).clamp(max=1)
    return (x + _like(delta * shrink, x)).clamp(0, 1)


BALLS = {
    "linf": Ball("linf", linf_size, linf_random_point, linf_step, linf_project),
    "l2": Ball("l2", l2_size, l2_random_point, l2_step, l2_project),
    "l1": Ball("l1", l1_size, l1_random_point, l1_step, l1_project),
}
DENSE_L1 = Ball("l1", l1_size, l1_random_point, l1_dense_step, l1_scale)
"""The l1 geometry of some published PGD: dense steps and no true projection, which makes a weak attack."""
