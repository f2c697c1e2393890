"""Standard training: cross-entropy on the images as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.registry import objectives
from hardtack.objectives.contract import Objective, ObjectiveConfig

Smoothing = Annotated[float, Field(ge=0, lt=1)]


@objectives.register("standard", help="cross-entropy on clean images")
@dataclass(frozen=True, kw_only=True)
class StandardConfig(ObjectiveConfig):
    """The settings of objective=standard.

    label_smoothing  share of the label that is spread over all classes
    """

    label_smoothing: Smoothing = 0.0

    def build(self, model: nn.Module) -> Standard:
        return Standard(model, self)


class Standard(Objective):
    config: StandardConfig

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)
        return {"loss": loss, "accuracy": accuracy(logits, y)}


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """The share of images whose largest logit is that of the label, or of the most probable label."""
    labels = y.argmax(dim=1) if y.is_floating_point() else y
    return (logits.detach().argmax(dim=1) == labels).float().mean()
