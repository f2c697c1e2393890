"""TRADES (Zhang et al. 2019): be right on the clean image, and say the same around it.

    CE(f(x), y) + beta · KL( f(x) ‖ f(x_adv) ),   x_adv maximising that same KL inside the ball.

Gradient flows through both branches of the KL. Clean and attacked images pass the network as one batch of 2N,
so that a wrapped model is called once and batch-norm layers see both halves together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.config import Choice
from hardtack.objectives.adversary import Adversary, Warmup
from hardtack.objectives.standard import Smoothing, accuracy
from hardtack.registry import attacks, objectives
from hardtack.threats import Threat

# The original starts from 0.001 × Gaussian noise; `start: random` gives the XCiT recipe's uniform start.
DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"), loss="kl", start="gaussian")


@objectives.register("trades", help="clean cross-entropy + beta × KL between clean and attacked predictions")
@dataclass(frozen=True, kw_only=True)
class TradesConfig:
    attack: Annotated[Any, Choice(attacks)] = DEFAULT_ATTACK
    warmup: Warmup = field(default_factory=Warmup)
    beta: Annotated[float, Field(ge=0)] = 6.0
    label_smoothing: Smoothing = 0.0

    def build(self, model: nn.Module) -> Trades:
        return Trades(model, self)


class Trades(nn.Module):
    def __init__(self, model: nn.Module, config: TradesConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        attack = dataclasses.replace(config.attack, loss=config.attack.loss or "kl")
        self.adversary = Adversary(model, attack, config.warmup)
        self.prepare = self.adversary.prepare

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        """x N×3×H×W in [0,1], y N labels or N×C probabilities, x_adv from `prepare`."""
        if x_adv is None:
            x_adv = self.prepare(x, y)["x_adv"]
        clean, attacked = self.model(torch.cat([x, x_adv])).float().chunk(2)
        natural = F.cross_entropy(clean, y, label_smoothing=self.config.label_smoothing)
        distance = F.kl_div(
            attacked.log_softmax(dim=1), clean.log_softmax(dim=1), reduction="batchmean", log_target=True
        )
        return {
            "loss": natural + self.config.beta * distance,
            "natural_loss": natural.detach(),
            "kl": distance.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, y),
        }
