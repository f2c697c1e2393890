"""Adversarial logit pairing (Kannan et al. 2018): be right on both images, with the same logits.

    CE over clean and attacked images alike + pairing · mean( (f(x) − f(x_adv))² ),

where the mean is over images and classes, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.registry import objectives
from hardtack.objectives.attacked import AttackSettings, repeat_for
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.standard import accuracy
from hardtack.objectives.statistics import TwoBatches


@objectives.register("alp", help="cross-entropy on clean and attacked images + squared distance of their logits")
@dataclass(frozen=True, kw_only=True)
class ALPConfig(AttackSettings, ObjectiveConfig):
    """The settings of objective=alp.

    pairing  weight of the squared distance between clean and attacked logits

    Paper: Kannan et al. 2018, Adversarial Logit Pairing (arXiv:1803.06373)
    """

    pairing: Annotated[float, Field(ge=0)] = 0.5

    def build(self, model: nn.Module) -> ALP:
        return ALP(model, self)


class ALP(Objective):
    config: ALPConfig

    def __init__(self, model: nn.Module, config: ALPConfig) -> None:
        super().__init__(model, config)
        self.logits = TwoBatches(model, config.separate_statistics)
        self.second = self.logits.second  # a module: its statistics are part of the state
        self.adversary = config.make_adversary(self.logits.attacked)

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        x_adv = self.prepare(x, y)["x_adv"] if x_adv is None else x_adv
        clean, attacked = self.logits(x, x_adv)
        target, smoothing = repeat_for(y, attacked), self.config.label_smoothing
        natural = F.cross_entropy(clean, y, label_smoothing=smoothing)
        robust = F.cross_entropy(attacked, target, label_smoothing=smoothing)
        distance = F.mse_loss(attacked, repeat_for(clean, attacked))
        return {
            "loss": (natural + robust) / 2 + self.config.pairing * distance,
            "natural_loss": natural.detach(),
            "distance": distance.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, target),
        }
