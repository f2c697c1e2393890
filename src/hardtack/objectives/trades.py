"""TRADES (Zhang et al. 2019): be right on the clean image, and predict the same around it.

    CE(f(x), y) + beta · KL( f(x) ‖ f(x_adv) ),   x_adv maximises the same KL inside the ball.

Gradient flows through both branches of the KL. Clean and attacked images pass the network as one batch of 2N, so that
a wrapped model is called once and batch-norm layers see both halves together; `separate_statistics` separates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.base.registry import objectives
from hardtack.objectives.attacked import AttackChoice, AttackSettings, repeat_for
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.standard import accuracy
from hardtack.objectives.statistics import TwoBatches
from hardtack.threats import Threat

# The original starts from 0.001 × Gaussian noise; `start: random` or `nudged` is the uniform start of the XCiT recipe.
DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"), loss="kl", start="gaussian")


@objectives.register("trades", help="clean cross-entropy + beta × KL between clean and attacked predictions")
@dataclass(frozen=True, kw_only=True)
class TradesConfig(AttackSettings, ObjectiveConfig):
    """The settings of objective=trades.

    attack   the attack that maximises the divergence: a name and its settings
    beta     weight of the divergence between clean and attacked predictions (the paper: 6)

    Paper: Zhang et al. 2019, Theoretically Principled Trade-off between Robustness and Accuracy (arXiv:1901.08573)
    """

    attack: AttackChoice = DEFAULT_ATTACK
    beta: Annotated[float, Field(ge=0)] = 6.0

    def build(self, model: nn.Module) -> Trades:
        return Trades(model, self)


class Trades(Objective):
    config: TradesConfig

    def __init__(self, model: nn.Module, config: TradesConfig) -> None:
        super().__init__(model, config)
        self.logits = TwoBatches(model, config.separate_statistics)
        self.second = self.logits.second  # a module: its statistics are part of the state
        self.adversary = config.make_adversary(self.logits.attacked, loss="kl")

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        x_adv = self.prepare(x, y)["x_adv"] if x_adv is None else x_adv
        clean, attacked = self.logits(x, x_adv)
        natural = F.cross_entropy(clean, y, label_smoothing=self.config.label_smoothing)
        # with `combine: average` there are several attacked batches, each compared with the clean one
        log_q, log_p = attacked.log_softmax(dim=1), repeat_for(clean, attacked).log_softmax(dim=1)
        kl = F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
        return {
            "loss": natural + self.config.beta * kl,
            "natural_loss": natural.detach(),
            "kl": kl.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, repeat_for(y, attacked)),
        }
