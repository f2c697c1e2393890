"""NES (Ilyas et al. 2018): ascent along a gradient that is estimated from logits alone.

    values at pairs of opposite points, x ± sigma · Gaussian noise → estimated gradient → running mean
    → steepest step of the norm → project to ball ∩ box

The estimator is that of `attack.nes`, which gives any attack an estimated gradient (gradients.py); this is the paper's
attack. An image leaves as soon as it is fooled, so that no further queries are spent on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.search import Cost, NewItems, State, common_entries
from hardtack.attacks.score_based import check_queries, directions_of, estimate, look
from hardtack.attacks.standalone import search_alone
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_WINDOW = 5  # steps after which the step length is halved if the loss has fallen
_SHORTEST = 1 / 200  # of the first step's length


@attacks.register("nes", help="NES: ascent along a gradient estimated from logits (score-based)")
@dataclass(frozen=True, kw_only=True)
class NES(Attack):
    """Natural evolution strategies.

    steps           steps of the ascent
    samples         queries that estimate the gradient of a step: half as many random directions, in both senses
    sigma           deviation of these directions in pixel units
    momentum        share of the last direction that the next step keeps
    relative_step   length of the first step in multiples of eps; it is halved when the loss has fallen within five
                    steps, down to a two-hundredth
    loss            what is climbed: cross-entropy or the margin

    One more query in each step looks at the iterate. The defaults are the paper's (a step of 0.01 at eps = 0.05); its
    searches end at a number of queries, which is here (samples + 1) · steps.

    Paper: Ilyas et al. 2018, Black-box Adversarial Attacks with Limited Queries and Information (arXiv:1804.08598)
    """

    threat: Threat
    steps: int = 200
    samples: int = 50
    sigma: Number = 0.001
    momentum: Number = 0.9
    relative_step: Number = 0.2
    loss: Literal["ce", "margin"] = "ce"
    restarts: int = 1
    reach: bool = False
    seed: int = 0

    uses_logit_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        check_queries(self.steps, self.restarts, self.samples, self.sigma)
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must lie in [0,1), found {self.momentum}")
        if not self.relative_step > 0:
            raise UserError(f"relative_step must be positive, found {self.relative_step}")

    search = search_alone

    # ------------------------------------------------------------ what the pool needs

    @property
    def pooled(self) -> bool:
        return True

    def cost(self, classes: int) -> Cost:
        return Cost(self.samples + 1, 0)

    def last_cost(self, classes: int) -> Cost:
        return Cost(1, 0)

    def begin(self, items: NewItems) -> State:
        flat = torch.zeros_like(items.x[:, 0, 0, 0])
        return common_entries(items) | {
            "point": items.x.clone(), "velocity": torch.zeros_like(items.x), "before": flat - torch.inf,
            "rate": flat + self.relative_step,
        }  # fmt: skip

    def advance(self, model: nn.Module, state: State) -> State:
        point, (entries, value) = state["point"], look(self, model, state)
        noises = directions_of(state, randomness.normal, self.samples // 2)
        gradient = estimate(self, model, state, noises, self.sigma)
        velocity = self.momentum * state["velocity"] + (1 - self.momentum) * gradient
        window = state["t"] % _WINDOW == 0
        rate = torch.where(window & (value < state["before"]), state["rate"] / 2, state["rate"])
        rate = rate.clamp_min(_SHORTEST * self.relative_step)
        moved = point + self.threat.ball.steepest_step(velocity, point, rate * self.threat.radius)
        return entries | {
            "point": self.threat.project(moved, state["x"]), "velocity": velocity, "rate": rate,
            "before": torch.where(window, value, state["before"]),
        }  # fmt: skip

    def finish(self, model: nn.Module, state: State) -> State:
        return look(self, model, state)[0]
