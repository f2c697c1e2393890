"""Adversarial training (Madry et al. 2018): cross-entropy on the attacked batch only.

One step of `fgsm` or `rfgsm` gives FGSM-AT, several of `pgd` PGD-AT.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.config import Choice
from hardtack.objectives.adversary import Adversary, Warmup
from hardtack.objectives.standard import Smoothing, accuracy
from hardtack.registry import attacks, objectives
from hardtack.threats import Threat

DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"))


@objectives.register("adversarial", help="cross-entropy on attacked images: FGSM-AT, PGD-AT")
@dataclass(frozen=True, kw_only=True)
class AdversarialConfig:
    attack: Annotated[Any, Choice(attacks)] = DEFAULT_ATTACK
    warmup: Warmup = field(default_factory=Warmup)
    label_smoothing: Smoothing = 0.0

    def build(self, model: nn.Module) -> Adversarial:
        return Adversarial(model, self)


class Adversarial(nn.Module):
    def __init__(self, model: nn.Module, config: AdversarialConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.adversary = Adversary(model, config.attack, config.warmup)
        self.prepare = self.adversary.prepare

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        """x N×3×H×W in [0,1], y N labels or N×C probabilities, x_adv from `prepare`."""
        if x_adv is None:
            x_adv = self.prepare(x, y)["x_adv"]
        logits = self.model(x_adv)
        loss = F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)
        return {"loss": loss, "robust_accuracy": accuracy(logits, y)}
