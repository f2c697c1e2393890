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

from hardtack.base.registry import objectives
from hardtack.objectives.attacked import Attacked, AttackedObjective, like
from hardtack.objectives.standard import accuracy


@objectives.register("alp", help="cross-entropy on clean and attacked images + squared distance of their logits")
@dataclass(frozen=True, kw_only=True)
class ALPConfig(Attacked):
    pairing: Annotated[float, Field(ge=0)] = 0.5

    def build(self, model: nn.Module) -> ALP:
        return ALP(model, self)


class ALP(AttackedObjective):
    def parts(self, x: Tensor, y: Tensor, x_adv: Tensor) -> dict[str, Tensor]:
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
