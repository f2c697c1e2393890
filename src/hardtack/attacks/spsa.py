"""SPSA (Uesato et al. 2018): Adam on a gradient that is estimated from logits alone, by simultaneous perturbation.

    values at pairs of opposite points, x ± delta · random signs → estimated gradient of the margin
    → a step of Adam → project to ball ∩ box

All pixels are changed at once by the same amount, in random directions (Spall 1992). An image leaves as soon as it is
fooled, so that no further queries are spent on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.search import Cost, NewItems, State, common_entries
from hardtack.attacks.score_based import check_queries, directions_of, estimate, look, signs
from hardtack.attacks.standalone import search_alone
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_DECAY, _SQUARE_DECAY, _CALM = 0.9, 0.999, 1e-8  # Adam's


@attacks.register("spsa", help="SPSA: Adam on a gradient estimated from logits (score-based)")
@dataclass(frozen=True, kw_only=True)
class SPSA(Attack):
    """Simultaneous perturbation stochastic approximation.

    steps     steps of Adam
    samples   queries that estimate the gradient of a step: half as many random directions, in both senses
    delta     how far every pixel moves in these queries
    lr        Adam's step in pixel units
    loss      what is climbed: the margin or cross-entropy

    One more query in each step looks at the iterate. delta, lr, the margin and 100 steps are the paper's; it takes up
    to 8192 samples a step, and CleverHans, whose default this is, 128.

    Paper: Uesato et al. 2018, Adversarial Risk and the Dangers of Evaluating Against Weak Attacks
        (arXiv:1802.05666)
    """

    threat: Threat
    steps: int = 100
    samples: int = 128
    delta: Number = 0.01
    lr: Number = 0.01
    loss: Literal["ce", "margin"] = "margin"
    restarts: int = 1
    reach: bool = False
    seed: int = 0

    uses_logit_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        check_queries(self.steps, self.restarts, self.samples, self.delta)
        if not self.lr > 0:
            raise UserError(f"lr must be positive, found {self.lr}")

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
        none = torch.zeros_like(items.x)
        return common_entries(items) | {"point": items.x.clone(), "mean": none, "square": none.clone()}

    def advance(self, model: nn.Module, state: State) -> State:
        entries, _ = look(self, model, state)
        noises = directions_of(state, signs, self.samples // 2)
        gradient = estimate(self, model, state, noises, self.delta)
        mean = _DECAY * state["mean"] + (1 - _DECAY) * gradient
        square = _SQUARE_DECAY * state["square"] + (1 - _SQUARE_DECAY) * gradient**2
        taken = (state["t"] + 1).to(mean.dtype).reshape(-1, 1, 1, 1)
        size = (square / (1 - _SQUARE_DECAY**taken)).sqrt() + _CALM
        moved = state["point"] + self.lr * mean / (1 - _DECAY**taken) / size
        return entries | {"point": self.threat.project(moved, state["x"]), "mean": mean, "square": square}

    def finish(self, model: nn.Module, state: State) -> State:
        return look(self, model, state)[0]
