"""The l1 geometry of some published PGD code: dense steps and no true projection, which makes a weak attack."""

from __future__ import annotations

from torch import Tensor

from hardtack.threats.balls import TINY, Ball, Eps, as_column, as_images, as_rows, l1_random_point, l1_size


def l1_dense_step(gradient: Tensor, x_adv: Tensor, length: Eps) -> Tensor:
    """Along the gradient itself, scaled to the length: every pixel moves a little, and the loss increases little."""
    rows = as_rows(gradient)
    return as_images(rows / rows.abs().sum(dim=1, keepdim=True).clamp_min(TINY) * as_column(length, gradient), gradient)


def l1_scale(z: Tensor, x: Tensor, eps: Eps) -> Tensor:
    """Into the ball by scaling all pixels by one factor, then into the box: feasible, but not the nearest point."""
    delta = as_rows(z - x)
    most = as_column(eps, x) * (1 - 1e-6)  # rounding over many pixels must not leave the ball
    shrink = (most / delta.abs().sum(dim=1, keepdim=True).clamp_min(TINY)).clamp(max=1)
    return (x + as_images(delta * shrink, x)).clamp(0, 1)


DENSE_L1 = Ball("l1", l1_size, l1_random_point, l1_dense_step, l1_scale)
