"""Ordinary training: cross-entropy on the images as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.base.registry import objectives

Smoothing = Annotated[float, Field(ge=0, lt=1)]


@objectives.register("standard", help="cross-entropy on clean images")
@dataclass(frozen=True, kw_only=True)
class StandardConfig:
    label_smoothing: Smoothing = 0.0

    def build(self, model: nn.Module) -> Standard:
        return Standard(model, self)


class Standard(nn.Module):
    def __init__(self, model: nn.Module, config: StandardConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config

    def prepare(self, x: Tensor, y: Tensor, **_: Any) -> dict[str, Tensor]:
        """What must be found on the bare model before the one call that gradients flow through: nothing."""
        return {}

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """x N×3×H×W in [0,1], y N labels or N×C probabilities."""
        logits = self.model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)
        return {"loss": loss, "accuracy": accuracy(logits, y)}


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    labels = y.argmax(dim=1) if y.is_floating_point() else y
    return (logits.detach().argmax(dim=1) == labels).float().mean()
