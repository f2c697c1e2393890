"""MART (Wang et al. 2020): adversarial training with more weight on images that are misclassified when clean.

    BCE(p(x_adv), y) + beta · KL( p(x) ‖ p(x_adv) ) · (1 − p_y(x)),
    BCE(p, y) = − log p_y − log(1 − max over the other classes of p).

Gradient flows through every term. beta is the paper's λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
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

DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"), start="gaussian")

_ALMOST_ONE = 1.0001  # the authors' constant: log(1 − p) stays finite where the network is certain and wrong


@objectives.register("mart", help="boosted cross-entropy on attacked images + KL, weighted by doubt on the clean ones")
@dataclass(frozen=True, kw_only=True)
class MARTConfig(AttackSettings, ObjectiveConfig):
    """The settings of objective=mart.

    attack   the attack on the training images: a name and its settings
    beta     weight of the divergence, which counts most where the clean image is in doubt (the paper's λ, 5)

    Paper: Wang et al. 2020, Improving Adversarial Robustness Requires Revisiting Misclassified Examples (ICLR)
    """

    attack: AttackChoice = DEFAULT_ATTACK
    beta: Annotated[float, Field(ge=0)] = 5.0

    def build(self, model: nn.Module) -> MART:
        return MART(model, self)


class MART(Objective):
    config: MARTConfig

    def __init__(self, model: nn.Module, config: MARTConfig) -> None:
        super().__init__(model, config)
        self.logits = TwoBatches(model, config.separate_statistics)
        self.second = self.logits.second  # a module: its statistics are part of the state
        self.adversary = config.make_adversary(self.logits.attacked)

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        x_adv = self.prepare(x, y)["x_adv"] if x_adv is None else x_adv
        clean, attacked = self.logits(x, x_adv)
        clean, target = repeat_for(clean, attacked), repeat_for(y, attacked)
        label = target.argmax(dim=1) if target.is_floating_point() else target
        boosted = F.cross_entropy(attacked, target, label_smoothing=self.config.label_smoothing)
        boosted = boosted - (_ALMOST_ONE - most_likely_other(attacked.softmax(dim=1), label)).log().mean()
        doubt = 1 - clean.softmax(dim=1).gather(1, label[:, None])[:, 0]
        each = F.kl_div(attacked.log_softmax(dim=1), clean.log_softmax(dim=1), reduction="none", log_target=True)
        distance = (each.sum(dim=1) * doubt).mean()
        return {
            "loss": boosted + self.config.beta * distance,
            "boosted_loss": boosted.detach(),
            "weighted_kl": distance.detach(),
            "accuracy": accuracy(clean, target),
            "robust_accuracy": accuracy(attacked, target),
        }


def most_likely_other(probability: Tensor, label: Tensor) -> Tensor:
    """The largest probability (N×C) of a class that is not the label."""
    own = torch.arange(probability.shape[1], device=label.device) == label[:, None]
    return probability.masked_fill(own, 0.0).amax(dim=1)
