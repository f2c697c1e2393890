"""The settings of a surrogate, and of the command that makes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.evaluation.target import TargetConfig
from hardtack.evaluation.threat_stages import DEFAULT_THREAT
from hardtack.models import ModelConfig
from hardtack.threats import Threat

Count = Annotated[int, Field(ge=1)]
SMALL = 64  # pixels a side


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """How a surrogate learns the answers of a model.

    surrogate    the network that learns (hardtack list models), the closer to the attacked one the better; null: a
                 small vision transformer up to 64 pixels, above that a ResNet-18 with smooth activations
    match        what it learns: logits, or labels where logits say no more than the predicted class; auto finds out
    rounds       times that it is trained, attacked, and shown the model's answers at the images found (Papernot et al.
                 2017)
    steps        optimiser steps in one round
    batch_size   images in one step
    lr           learning rate of a step
    images       images to learn from: so many of the attacked ones, and of the training split where there is one
    eot          passes of a random model that are averaged for one answer
    """

    surrogate: ModelConfig | None = None
    match: Literal["auto", "logits", "labels"] = "auto"
    rounds: Count = 6
    steps: Count = 150
    batch_size: Annotated[int, Field(ge=2)] = 64
    lr: Annotated[Number, Field(gt=0, allow_inf_nan=False)] = 3e-3
    images: Count = 500
    eot: Count = 1

    def __post_init__(self) -> None:
        check(self)
        if self.surrogate is not None and self.surrogate.pretrained:
            raise UserError("a surrogate is trained on the model's own answers; leave out surrogate.pretrained")

    def architecture(self, side: int) -> ModelConfig:
        """The network of the surrogate, for images of this size."""
        if self.surrogate is not None:
            return self.surrogate
        if side > SMALL:
            return ModelConfig(name="resnet18_224", options={"activation": "silu"})
        patch = next(size for size in (16, 8, 4, 2, 1) if size == 1 or (side % size == 0 and side // size >= 4))
        return ModelConfig(name="vit_digits", options={"patch_size": patch})


@dataclass(frozen=True, kw_only=True)
class AdaptConfig(TargetConfig, DistillationConfig):
    """The settings of `adapt`: a target, a threat, and a surrogate.

    threat   norm and radius of the attack
    output   the surrogate's run folder; null: RUN-surrogate
    """

    threat: Threat = DEFAULT_THREAT

    def distillation(self) -> DistillationConfig:
        names = DistillationConfig.__dataclass_fields__
        return DistillationConfig(**{name: getattr(self, name) for name in names})
