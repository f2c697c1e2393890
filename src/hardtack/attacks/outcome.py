"""What a search sees step by step, and what it makes of it: the best image so far and whether it succeeds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardtack.base import randomness


class Outcome(NamedTuple):
    """What a search found, one entry per image."""

    x_adv: Tensor
    fooled: Tensor  # the returned image is misclassified (targeted: classified as the target)
    broken_at: Tensor  # gradient steps taken before the first success; −1 where there was none
    first_loss: Tensor
    best_loss: Tensor
    zero_gradient: Tensor  # the gradient at the start was exactly zero, or NaN
    not_finite: Tensor  # some logits met on the way were NaN or infinite


class Step(NamedTuple):
    x_adv: Tensor
    velocity: Tensor
    value: Tensor
    logits: Tensor
    zero_gradient: Tensor


def nothing_yet(x: Tensor) -> Outcome:
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    worst = torch.full((len(x),), -torch.inf, device=x.device)
    never = torch.full((len(x),), -1, dtype=torch.int64, device=x.device)
    return Outcome(x, none, never, worst, worst, none, none)


def succeeds(logits: Tensor, goal: Tensor, sign: float) -> Tensor:
    hit = (logits.argmax(dim=1) == goal) == (sign < 0)
    return hit & logits.isfinite().all(dim=1)  # NaN logits are a fault to report, not a success


def better(best: Outcome, x_adv: Tensor, at: Step, goal: Tensor, sign: float, taken: int) -> Outcome:
    """`best`, improved where `x_adv` succeeds for the first time or climbs higher among its equals."""
    hit = succeeds(at.logits, goal, sign)
    higher = (hit & ~best.fooled) | ((hit == best.fooled) & (at.value > best.best_loss))
    first = taken == 0
    return Outcome(
        torch.where(higher[:, None, None, None], x_adv, best.x_adv),
        best.fooled | hit,
        torch.where(hit & (best.broken_at < 0), taken, best.broken_at),
        at.value if first else best.first_loss,
        torch.where(higher, at.value, best.best_loss),
        at.zero_gradient if first else best.zero_gradient,
        best.not_finite | ~at.logits.isfinite().all(dim=1),
    )


def choose_target(clean: Tensor, y: Tensor, keys: Tensor, how: str) -> Tensor:
    """A class other than the label: at random per image, or the least or most likely wrong one."""
    classes = clean.shape[1]
    if how == "random":
        return (y + 1 + randomness.integers(keys, classes - 1, stream=7)) % classes
    liking = clean if how == "runner_up" else -clean
    return liking.masked_fill(nn.functional.one_hot(y, classes).bool(), -torch.inf).argmax(dim=1)


def aim(
    model: nn.Module, x: Tensor, y: Tensor, keys: Tensor | None, seed: int, target: Tensor | None, how: str | None
) -> tuple[Tensor, float]:
    """The labels to leave and +1 or, with targets given or to be chosen, the labels to reach and −1."""
    y = y.argmax(dim=1) if y.is_floating_point() else y
    if target is None and how is not None:
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        with torch.no_grad():
            target = choose_target(model(x).float(), y, randomness.make_keys(keys, seed), how)
    return (y, 1.0) if target is None else (target, -1.0)
