"""Adversarial training (Madry et al. 2018): cross-entropy on the attacked batch and, optionally, on the clean one.

    (1 − w) · CE(f(x_adv), y) + w · CE(f(x), y),   w = clean_weight, 0 by default.

One step of `fgsm` or `rfgsm` gives FGSM-AT, several of `pgd` PGD-AT. `clean_pass` passes the clean batch as well,
before the attacked one and without a gradient, as the code of the XCiT thesis does: the loss is the same, but the
running statistics of batch norm see clean images too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.objectives.attacked import AttackSettings, repeat_for
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.standard import accuracy
from hardtack.objectives.statistics import TwoBatches


@objectives.register("adversarial", help="cross-entropy on attacked images: FGSM-AT, PGD-AT")
@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(AttackSettings, ObjectiveConfig):
    """The settings of objective=adversarial.

    clean_weight   share of the clean cross-entropy in the loss; 0: attacked images only
    clean_pass     pass the clean batch too, without a gradient, so that batch norm sees clean images (the code of the
                   XCiT thesis)

    Paper: Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks (arXiv:1706.06083)
    """

    clean_weight: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clean_pass: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.separate_statistics is not None and self.clean_weight == 0:
            raise UserError("separate_statistics needs clean images as well: set clean_weight, for example to 0.5")
        if self.clean_pass and self.clean_weight > 0:
            raise UserError("clean_weight passes the clean batch already, which is all that clean_pass does: set one")

    def build(self, model: nn.Module) -> Adversarial:
        return Adversarial(model, self)


class Adversarial(Objective):
    config: AdversarialConfig

    def __init__(self, model: nn.Module, config: AdversarialConfig) -> None:
        super().__init__(model, config)
        self.logits = TwoBatches(model, config.separate_statistics)
        self.second = self.logits.second  # a module: its statistics are part of the state
        self.adversary = config.make_adversary(self.logits.attacked)

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        x_adv = self.prepare(x, y)["x_adv"] if x_adv is None else x_adv
        if self.config.clean_weight == 0:
            parts = self._clean_pass(x, y) if self.config.clean_pass else {}
            logits = self.model(x_adv)
            robust = accuracy(logits, repeat_for(y, logits))
            return {"loss": self._cross_entropy(logits, y), **parts, "robust_accuracy": robust}
        clean, attacked = self.logits(x, x_adv)
        share, natural = self.config.clean_weight, self._cross_entropy(clean, y)
        return {
            "loss": (1 - share) * self._cross_entropy(attacked, y) + share * natural,
            "natural_loss": natural.detach(),
            "accuracy": accuracy(clean, y),
            "robust_accuracy": accuracy(attacked, repeat_for(y, attacked)),
        }

    @torch.no_grad()
    def _clean_pass(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """What is logged of the clean batch; in train mode its pass moves batch-norm statistics."""
        clean = self.model(x)
        return {"natural_loss": self._cross_entropy(clean, y), "accuracy": accuracy(clean, y)}

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, repeat_for(y, logits), label_smoothing=self.config.label_smoothing)
