"""Training with Gaussian noise: cross-entropy on noisy images, for models that are to be smoothed.

Cohen, Rosenfeld and Kolter, "Certified adversarial robustness via randomized smoothing", ICML 2019, train with the
noise under which the model will be certified (`suite=smoothing`). As there, the noise is not cut off at [0,1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.registry import objectives
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.standard import Smoothing, accuracy

_STREAM = 0x67617573


@objectives.register("gaussian", help="cross-entropy under Gaussian noise, for certificates (suite=smoothing)")
@dataclass(frozen=True, kw_only=True)
class GaussianConfig(ObjectiveConfig):
    """The settings of objective=gaussian.

    sigma            deviation of the noise in pixel units
    label_smoothing  share of the label that is spread over all classes

    Paper: Cohen et al. 2019, Certified Adversarial Robustness via Randomized Smoothing (arXiv:1902.02918)
    """

    sigma: Annotated[float, Field(gt=0)] = 0.25
    label_smoothing: Smoothing = 0.0

    def build(self, model: nn.Module) -> Gaussian:
        return Gaussian(model, self)


class Gaussian(Objective):
    config: GaussianConfig

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = float("inf")
    ) -> dict[str, Tensor]:
        """The noisy images: another noise in every step, since the keys are another."""
        keys = randomness.fresh_keys(len(x), x.device) if keys is None else keys
        noise = randomness.normal_pairs(randomness.fold(keys, _STREAM), tuple(x.shape[1:]))
        return {"noisy": x + self.config.sigma * noise}

    def forward(self, x: Tensor, y: Tensor, *, noisy: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.model(self.prepare(x, y)["noisy"] if noisy is None else noisy)
        loss = F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)
        return {"loss": loss, "accuracy": accuracy(logits, y)}
