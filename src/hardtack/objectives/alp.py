"""Adversarial logit pairing (Kannan et al. 2018): be right on both images, with the same logits.

    CE over clean and attacked images alike + pairing · mean( (f(x) − f(x_adv))² ),

the mean being over images and classes, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.objectives.attacked import Attacked, like, make_players
from hardtack.objectives.standard import accuracy
from hardtack.registry import objectives


@objectives.register("alp", help="cross-entropy on clean and attacked images + squared distance of their logits")
@dataclass(frozen=True, kw_only=True)
class ALPConfig(Attacked):
    pairing: Annotated[float, Field(ge=0)] = 0.5

    def build(self, model: nn.Module) -> ALP:
        return ALP(model, self)


class ALP(nn.Module):
    def __init__(self, model: nn.Module, config: ALPConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.adversary, self.paths = make_players(model, config)
        self.second = self.paths.second
        self.prepare = self.adversary.prepare

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        """x N×3×H×W in [0,1], y N labels or N×C probabilities, x_adv from `prepare`."""
        if x_adv is None:
            x_adv = self.prepare(x, y)["x_adv"]
        clean, attacked = self.paths(x, x_adv)
        target, smoothing = like(y, attacked), self.config.label_smoothing
        natural = F.cross_entropy(clean, y, label_smoothing=smoothing)
        robust = F.cross_entropy(attacked, target, label_smoothing=smoothing)
        distance = F.mse_loss(attacked, like(clean, attacked))
        return {
            "loss": (natural + robust) / 2 + self.config.pairing * distance,
            "natural_loss": natural.detach(),
            "distance": distance.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, target),
        }
