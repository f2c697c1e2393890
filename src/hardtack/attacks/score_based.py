"""What attacks share that estimate a gradient from logits alone (NES, SPSA): queries, counted by image and by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.gradients import check_noise, difference_gradient
from hardtack.attacks.losses import cross_entropy
from hardtack.attacks.pool.search import State, observe, success_margin
from hardtack.base import randomness
from hardtack.base.errors import UserError

Draw = Callable[[Tensor, tuple[int, ...], int], Tensor]


def check_queries(steps: int, restarts: int, samples: int, sigma: float) -> None:
    """Refuse numbers of queries that make no sense."""
    if steps < 1 or restarts < 1:
        raise UserError(f"steps and restarts must be at least 1, found {steps} and {restarts}")
    check_noise(sigma, samples)
    if samples % 2:
        raise UserError(f"a gradient is estimated from pairs of images: samples must be even, found {samples}")


def climbed(attack: Attack, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """What the search climbs: higher means closer to a wrong answer or, with `reach`, to the target class."""
    if attack.loss == "margin":
        return success_margin(logits, y, target, reach=attack.reach)
    return -cross_entropy(logits, target) if attack.reach else cross_entropy(logits, y)


@torch.no_grad()
def look(attack: Attack, model: nn.Module, state: State) -> tuple[State, Tensor]:
    """The common entries after one query at the iterate, and the loss there."""
    logits = model(state["point"])
    logits = logits if logits.dtype == torch.float64 else logits.float()
    value = climbed(attack, logits, state["y"], state["target"]).to(state["first_loss"].dtype)
    entries = observe(state, state["point"], logits, reach=attack.reach, loss=value)
    return entries | {"done": state["t"] >= state["steps"]}, value


@torch.no_grad()
def estimate(attack: Attack, model: nn.Module, state: State, noises: Iterator[Tensor], sigma: float) -> Tensor:
    """The gradient of the loss at the iterates, from queries around them."""
    point, y, target = state["point"], state["y"], state["target"]

    def values(points: Tensor) -> Tensor:
        copies = len(points) // len(point)
        return climbed(attack, model(points).float(), y.repeat(copies), target.repeat(copies))[:, None]

    gradient = difference_gradient(values, point, noises, sigma, weights=torch.ones_like(point[:, :1, 0, 0]))
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def directions_of(state: State, draw: Draw, count: int) -> Iterator[Tensor]:
    """So many random directions for each row, drawn from its key and the number of its step."""
    keys, shape = randomness.fold(state["keys"], state["t"]), tuple(state["x"].shape[1:])
    for number in range(count):
        yield draw(keys, shape, number).to(state["x"].dtype)


def signs(keys: Tensor, shape: tuple[int, ...], stream: int) -> Tensor:
    """−1 or +1 with equal probability."""
    return (randomness.bits(keys, shape, stream) & 1).float() * 2 - 1
