"""TRADES (Zhang et al. 2019): be right on the clean image, and say the same around it.

    CE(f(x), y) + beta · KL( f(x) ‖ f(x_adv) ),   x_adv maximising that same KL inside the ball.

Gradient flows through both branches of the KL. Clean and attacked images pass the network as one batch of 2N,
so that a wrapped model is called once and batch-norm layers see both halves together (`separate_statistics` keeps
them apart).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.base.registry import objectives
from hardtack.objectives.attacked import AnAttack, Attacked, AttackedObjective, like
from hardtack.objectives.standard import accuracy
from hardtack.threats import Threat

# The original starts from 0.001 × Gaussian noise; `start: random` or `nudged` gives the XCiT recipe's uniform start.
DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"), loss="kl", start="gaussian")


@objectives.register("trades", help="clean cross-entropy + beta × KL between clean and attacked predictions")
@dataclass(frozen=True, kw_only=True)
class TradesConfig(Attacked):
    attack: AnAttack = DEFAULT_ATTACK
    beta: Annotated[float, Field(ge=0)] = 6.0

    def build(self, model: nn.Module) -> Trades:
        return Trades(model, self)


class Trades(AttackedObjective):
    climbs = "kl"

    def parts(self, x: Tensor, y: Tensor, x_adv: Tensor) -> dict[str, Tensor]:
        clean, attacked = self.paths(x, x_adv)
        natural = F.cross_entropy(clean, y, label_smoothing=self.config.label_smoothing)
        said, repeated = attacked.log_softmax(dim=1), like(clean, attacked).log_softmax(dim=1)
        distance = F.kl_div(said, repeated, reduction="batchmean", log_target=True)
        return {
            "loss": natural + self.config.beta * distance,
            "natural_loss": natural.detach(),
            "kl": distance.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, like(y, attacked)),
        }
