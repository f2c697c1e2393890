"""The set of images an adversary may use: an lp ball around the clean image, intersected with the box of valid pixels.

Each norm has four functions: `size` of a perturbation, a `random_point` of the ball, the `steepest_step` that increases
a linear loss most per unit of the norm, and `project`, the exact Euclidean projection onto ball ∩ [0,1]^d (clipping
after an ordinary l1 or l2 projection is feasible but not the nearest point: Croce and Hein, "Mind the box", 2021).
Everything is batched, runs on any device, and never makes the host wait for the device.

`x` is the clean N×C×H×W image in [0,1]; `eps` is a number or a tensor of one or N values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hardtack.base import randomness

Eps = float | Tensor

# Newton's method below is exact once it reaches the right linear piece, in practice within six steps; with too few
# steps the point is inside the ball, never outside.
_NEWTON_STEPS = 12
_BISECTION_STEPS = 30
TINY = 1e-30


@dataclass(frozen=True)
class Ball:
    """A norm, as the four functions that attacks need."""

    norm: str
    size: Callable[[Tensor], Tensor]
    random_point: Callable[[Tensor, Eps, Tensor], Tensor]
    steepest_step: Callable[[Tensor, Tensor, Eps], Tensor]
    project: Callable[[Tensor, Tensor, Eps], Tensor]


def as_rows(x: Tensor) -> Tensor:
    return x.flatten(1)


def as_images(rows: Tensor, x: Tensor) -> Tensor:
    return rows.reshape(x.shape)


def as_column(eps: Eps, x: Tensor) -> Tensor:
    if isinstance(eps, Tensor):
        return eps.to(x).reshape(-1, 1)
    return torch.full((1, 1), eps, dtype=x.dtype, device=x.device)  # on the device: CUDA graphs cannot capture a copy


def can_look(x: Tensor) -> bool:
    """Whether a value may be read back: only on a CPU, where nobody waits for a device, and outside of a compiler."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _room(step: Tensor, x: Tensor) -> Tensor:
    """How far each pixel may move in the direction of `step` before it leaves [0,1]."""
    return torch.where(step > 0, 1 - x, x)


# ---------------------------------------------------------------- linf


def linf_size(delta: Tensor) -> Tensor:
    return as_rows(delta).abs().amax(dim=1)


def linf_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    noise = as_rows(randomness.uniform(keys, tuple(x.shape[1:]))) * 2 - 1
    return (x + as_images(noise * as_column(eps, x), x)).clamp(0, 1)


def linf_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    return as_images(as_rows(gradient.sign()) * as_column(length, gradient), gradient)


def linf_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    radius = as_column(eps, x).reshape(-1, *[1] * (x.dim() - 1))
    return torch.minimum(torch.maximum(z, x - radius), x + radius).clamp(0, 1)


# ---------------------------------------------------------------- l2


def l2_size(delta: Tensor) -> Tensor:
    return as_rows(delta).norm(dim=1)


def l2_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    """Uniform in the ball: a Gaussian direction at radius eps · u^(1/d), then clipped to the box."""
    direction = as_rows(randomness.normal(keys, tuple(x.shape[1:])))
    radius = randomness.uniform(keys, (1,), stream=1) ** (1 / direction.shape[1])
    step = direction / direction.norm(dim=1, keepdim=True).clamp_min(TINY) * radius * as_column(eps, x)
    return (x + as_images(step, x)).clamp(0, 1)


def l2_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    rows = as_rows(gradient)
    # divide by the largest entry first: the square of a tiny gradient (1e-25) is 0 in fp32
    rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(TINY)
    return as_images(rows / rows.norm(dim=1, keepdim=True).clamp_min(TINY) * as_column(length, gradient), gradient)


def l2_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """The solution is x + clip(s·d, box) with d = z − x and the largest s ≤ 1 that stays in the ball.

    In t = s² the squared length Σ min(d²t, room²) is concave and piecewise linear, so Newton's method from the left
    increases towards the root and never passes it.
    """
    delta = as_rows(z - x)
    room, squared = _room(delta, as_rows(x)) ** 2, delta**2
    budget = as_column(eps, x) ** 2
    t = (budget / squared.sum(dim=1, keepdim=True).clamp_min(TINY)).clamp(max=1)
    for _ in range(_NEWTON_STEPS):
        free = squared * t < room
        taken = torch.where(free, 0, room).sum(dim=1, keepdim=True)
        slope = torch.where(free, squared, 0).sum(dim=1, keepdim=True)
        before, t = t, torch.maximum(t, ((budget - taken) / slope.clamp_min(TINY)).clamp(max=1))
        if can_look(t) and torch.equal(t, before):  # so would all further steps leave it
            break
    return (x + as_images(delta * t.sqrt(), x)).clamp(0, 1)


# ---------------------------------------------------------------- l1


def l1_size(delta: Tensor) -> Tensor:
    return as_rows(delta).abs().sum(dim=1)


def l1_random_point(x: Tensor, eps: Eps, keys: Tensor) -> Tensor:
    """Uniform in the ball: d signed exponentials over the sum of d + 1 of them, then clipped to the box."""
    shape = tuple(x.shape[1:])
    exponential = -torch.log1p(-as_rows(randomness.uniform(keys, shape)))
    spare = -torch.log1p(-randomness.uniform(keys, (1,), stream=1))
    sign = as_rows(randomness.bits(keys, shape, stream=2) & 1).to(x.dtype) * 2 - 1
    total = exponential.sum(dim=1, keepdim=True) + spare
    return (x + as_images(sign * exponential / total.clamp_min(TINY) * as_column(eps, x), x)).clamp(0, 1)


def l1_step(gradient: Tensor, x_adv: Tensor, length: Eps, density: float = 0.01) -> Tensor:
    """The largest increase of a linear loss within the box when no pixel moves by more than an equal share.

    The true steepest step moves one pixel; sharing the step between a `density` of all pixels needs fewer passes
    (Tramèr and Boneh, 2019, who use one hundredth: with more pixels the attack succeeds on fewer images). The part of a
    share that a pixel near its bound cannot use goes to the next pixel: after a projection the best pixels are close to
    their bounds, and would otherwise take most of every step without moving.
    """
    rows, budget = as_rows(gradient), as_column(length, gradient)
    worth, order = rows.abs().sort(dim=1, descending=True)
    share = budget / max(1, round(density * rows.shape[1]))
    most = torch.minimum(_room(rows, as_rows(x_adv)).gather(1, order), share) * (worth > 0)
    spent = most.cumsum(dim=1) - most
    moved = torch.minimum(most, (budget - spent).clamp_min(0))
    return as_images(rows.sign() * torch.zeros_like(rows).scatter(1, order, moved), gradient)


def l1_project(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """The solution is x + sign(d)·clip(|d| − λ, 0, room) with d = z − x and the smallest λ ≥ 0 in the ball.

    The length is piecewise linear and decreasing in λ: bisection finds the linear piece, a secant step is exact on it.
    """
    budget = as_column(eps, x)
    if x.is_cuda and not torch.compiler.is_compiling():
        from hardtack.threats import l1_kernel

        if l1_kernel.fits(x):
            return l1_kernel.project(z, x, budget, steps=_BISECTION_STEPS, tiny=TINY).clamp(0, 1)
    delta = as_rows(z - x)
    magnitude, room = delta.abs(), _room(delta, as_rows(x))

    def length(shrink: Tensor) -> Tensor:
        return torch.minimum((magnitude - shrink).clamp_min(0), room).sum(dim=1, keepdim=True)

    low = torch.zeros_like(budget.expand(len(x), 1))
    high = magnitude.amax(dim=1, keepdim=True)
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        outside = length(middle) > budget
        low, high = torch.where(outside, middle, low), torch.where(outside, high, middle)
    over, under = length(low) - budget, budget - length(high)
    secant = low + (high - low) * over / (over + under).clamp_min(TINY)
    moved = torch.minimum((magnitude - torch.where(over <= 0, low, secant)).clamp_min(0), room)
    # far from the ball fp32 cannot resolve λ: scale down what still exceeds the budget
    moved = moved * (budget / moved.sum(dim=1, keepdim=True).clamp_min(TINY)).clamp(max=1)
    # adding x rounds every pixel by up to a quarter of eps; over 150,000 pixels the sum would leave the ball
    moved = torch.where(over > 0, (moved - torch.finfo(x.dtype).eps / 4).clamp_min(0), moved)
    return (x + as_images(delta.sign() * moved, x)).clamp(0, 1)


BALLS = {
    "linf": Ball("linf", linf_size, linf_random_point, linf_step, linf_project),
    "l2": Ball("l2", l2_size, l2_random_point, l2_step, l2_project),
    "l1": Ball("l1", l1_size, l1_random_point, l1_step, l1_project),
}
