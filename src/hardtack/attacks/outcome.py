"""What a batch attack observes step by step: the best image so far, and whether it succeeds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class AttackOutcome(NamedTuple):
    """The result of a search, one entry per image."""

    x_adv: Tensor
    fooled: Tensor  # the returned image is misclassified (targeted: classified as the target)
    broken_at: Tensor  # steps taken before the first success; −1 where there was none
    first_loss: Tensor
    best_loss: Tensor
    zero_gradient: Tensor  # the gradient at the start was exactly zero, or NaN
    not_finite: Tensor  # some logits during the search were NaN or infinite


class Step(NamedTuple):
    """What one step of an ascent returns: the next point, and what was computed at the point before it."""

    x_adv: Tensor
    velocity: Tensor
    value: Tensor  # of the loss
    logits: Tensor
    zero_gradient: Tensor


def nothing_yet(x: Tensor) -> AttackOutcome:
    """The outcome before the first step: the clean images, no success."""
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    worst = torch.full((len(x),), -torch.inf, device=x.device)
    never = torch.full((len(x),), -1, dtype=torch.int64, device=x.device)
    return AttackOutcome(x, none, never, worst, worst, none, none)


def succeeds(logits: Tensor, goal: Tensor, sign: float) -> Tensor:
    """Whether the prediction differs from the label `goal` (sign +1) or is the target `goal` (sign −1)."""
    hit = (logits.argmax(dim=1) == goal) == (sign < 0)
    return hit & logits.isfinite().all(dim=1)  # NaN logits are a fault to report, not a success


def better(best: AttackOutcome, x_adv: Tensor, at: Step, goal: Tensor, sign: float, taken: int) -> AttackOutcome:
    """`best`, replaced where `x_adv` is the first success, or has a higher loss and is as successful as the best."""
    hit = succeeds(at.logits, goal, sign)
    higher = (hit & ~best.fooled) | ((hit == best.fooled) & (at.value > best.best_loss))
    first = taken == 0
    return AttackOutcome(
        torch.where(higher[:, None, None, None], x_adv, best.x_adv),
        best.fooled | hit,
        torch.where(hit & (best.broken_at < 0), taken, best.broken_at),
        at.value if first else best.first_loss,
        torch.where(higher, at.value, best.best_loss),
        at.zero_gradient if first else best.zero_gradient,
        best.not_finite | ~at.logits.isfinite().all(dim=1),
    )
