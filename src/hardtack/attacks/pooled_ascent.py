"""PGD, momentum PGD and FGSM in the pool: the steps of ascent.py, one row for each attempt.

These functions are methods of `Ascent`. An attempt takes the same starting point and the same steps as the loop over a
batch. The first misclassified iterate is kept; without one, the iterate with the highest loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hardtack.attacks.losses import get_loss
from hardtack.attacks.outcome import Step, succeeds
from hardtack.attacks.pool.search import Cost, NewItems, State, common_entries, observe, success_margin
from hardtack.base import randomness

if TYPE_CHECKING:
    from hardtack.attacks.ascent import Ascent

_TINY = 1e-30


def last_cost(self: Ascent, classes: int) -> Cost:
    """The pass over the last iterate needs no gradient."""
    return Cost(self.eot, 0)


def begin(self: Ascent, items: NewItems) -> State:
    """The starting points."""
    x, eps = items.x, torch.full_like(items.x[0, 0, 0, 0], self.threat.radius)
    keys = randomness.make_keys(items.image_keys, self.seed, items.restart)
    point = self.starting_point(x, eps, keys, self.ball)
    never = torch.full_like(x[:, 0, 0, 0], -torch.inf)
    state = common_entries(items) | {"point": point, "score": never, "restart": items.restart}
    if self.momentum:
        state["velocity"] = torch.zeros_like(x)
    return state | ({"reference": items.clean} if self.loss == "kl" else {})


def advance(self: Ascent, model: nn.Module, state: State) -> State:
    """Look at the current iterates and move them one step."""
    point = state["point"]
    velocity = state.get("velocity", point)  # not used without momentum
    at = self.step_from(model, point, state["x"], state["y"], velocity, state.get("reference", point))
    moved = {"point": at.x_adv} | ({"velocity": at.velocity} if self.momentum else {})
    return _observe(self, state, at) | moved


def finish(self: Ascent, model: nn.Module, state: State) -> State:
    """Look at the last iterates, which no step follows."""
    draws, loss = self.draws(model, state["point"]), get_loss(self.loss or "ce")
    value = torch.stack([loss(draw, state["y"], state.get("reference")) for draw in draws]).mean(dim=0)
    point, logits = state["point"], draws.mean(dim=0)
    return _observe(self, state, Step(point, point, value, logits, state["zero_gradient"]))


def _observe(self: Ascent, state: State, at: Step) -> State:
    hit = succeeds(at.logits, state["y"], 1.0)
    margin = success_margin(at.logits, state["y"], state["y"], reach=False)
    margin = torch.where(hit, margin.clamp_min(_TINY), margin)  # two equal logits may be a success
    score = torch.where(hit, torch.inf, at.value)
    entries = observe(state, state["point"], at.logits, reach=False, margin=margin, score=score, loss=at.value)
    taken = state["restart"] * self.steps + state["t"]
    return entries | {
        "done": state["t"] >= state["steps"],
        "found_at": torch.where(score > state["score"], taken, state["found_at"]),
        "zero_gradient": torch.where(taken == 0, at.zero_gradient, state["zero_gradient"]),
    }
