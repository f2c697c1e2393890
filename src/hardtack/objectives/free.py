"""Free adversarial training (Shafahi et al. 2019): one backward pass updates the weights and the perturbation.

There are `replays` updates in a row on every batch, with one perturbation that is kept from replay to replay and from
batch to batch:

    x_adv = clip(x + delta),   weights: one optimiser step,   delta ← clip(delta + step · sign(gradient), ±eps).

There is no separate attack and no cost for one. An epoch has `replays` times as many steps, so a recipe has that many
fewer epochs. The perturbation is part of the objective's state; under torchrun every process has its own, and a
continued run begins with that of the first process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Mode
from hardtack.base.config import Number
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.objectives.adversary import Warmup
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.standard import Smoothing, accuracy
from hardtack.threats import Threat


@objectives.register(
    "free", help="adversarial training at the price of standard: batches replayed, one gradient for both"
)
@dataclass(frozen=True, kw_only=True)
class FreeConfig(ObjectiveConfig):
    """The settings of objective=free.

    threat            the ball that the perturbation stays in (linf)
    replays           updates in a row on every batch, each moving weights and perturbation
    relative_step     step of the perturbation at each replay, in multiples of eps
    warmup            how the radius grows over the first epochs
    label_smoothing   share of the label that is spread over all classes

    Paper: Shafahi et al. 2019, Adversarial Training for Free! (arXiv:1904.12843)
    """

    threat: Threat = field(default_factory=lambda: Threat.parse("linf:8/255"))
    replays: Annotated[int, Field(ge=1)] = 8
    relative_step: Number = 1.0
    warmup: Warmup = field(default_factory=Warmup)
    label_smoothing: Smoothing = 0.0

    def __post_init__(self) -> None:
        if self.threat.norm != "linf":
            raise UserError(f"free adversarial training is for linf threats, found {self.threat}; use adversarial")
        if not self.relative_step > 0:
            raise UserError(f"relative_step must be positive, found {self.relative_step}")

    def notes(self, *, epochs: float) -> Iterator[str]:
        yield from self.warmup.notes(epochs=epochs)

    def threats(self) -> tuple[Threat, ...]:
        return (self.threat,)

    def attack_steps(self) -> int:
        return 1

    def build(self, model: nn.Module) -> Free:
        return Free(model, self)


class Free(Objective):
    config: FreeConfig

    def __init__(self, model: nn.Module, config: FreeConfig) -> None:
        super().__init__(model, config)
        self.replays = config.replays
        self.delta = torch.zeros(0)  # one perturbation for each position in the batch, whichever image is there
        self._parts: list[Tensor] = []  # the perturbations of the micro-batches of this step
        self._factor = 1.0  # the fraction of the radius at this time

    @property
    def attack_mode(self) -> Mode:
        return "train"

    def radius(self, epoch: float) -> dict[str, float]:
        share = self.config.warmup.factor(epoch)
        return {"eps_share": share, "eps": share * self.config.threat.radius}

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf
    ) -> dict[str, Tensor]:
        """The perturbation of this micro-batch. It is a leaf, so that the backward pass leaves its gradient there."""
        self._factor = self.config.warmup.factor(epoch)
        delta = self._perturbation(x, sum(len(part) for part in self._parts))
        if torch.is_grad_enabled():
            self._parts.append(delta.requires_grad_())
        return {"delta": delta}

    def _perturbation(self, x: Tensor, start: int) -> Tensor:
        """The perturbations from position `start` on, one for each image; zero beyond the largest batch so far."""
        kept = self.delta[start : start + len(x)].to(x).reshape(-1, *x.shape[1:])
        fresh = torch.zeros(len(x) - len(kept), *x.shape[1:], dtype=x.dtype, device=x.device)
        radius = self.config.threat.radius * self._factor
        return torch.cat([kept, fresh]).clamp(-radius, radius)

    def forward(self, x: Tensor, y: Tensor, delta: Tensor | None = None) -> dict[str, Tensor]:
        delta = self.prepare(x, y)["delta"] if delta is None else delta
        logits = self.model((x + delta).clamp(0, 1))
        loss = F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)
        return {"loss": loss, "robust_accuracy": accuracy(logits, y)}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Also clears the perturbation: with sharpness-aware training the second gradient is the one that counts."""
        super().zero_grad(set_to_none)
        for part in self._parts:
            part.grad = None

    @torch.no_grad()
    def finish_step(self) -> None:
        """Move the perturbation along the gradient that the backward pass of the update left at the images."""
        final = self.config.threat.radius
        length = final * self.config.relative_step * (1.0 if self.config.warmup.step == "final" else self._factor)
        radius = final * self._factor
        steps = [(part, part.grad.sign()) for part in self._parts if part.grad is not None]
        if steps:
            self.delta = torch.cat([(part + length * sign).clamp(-radius, radius) for part, sign in steps])
        self._parts = []

    def get_extra_state(self) -> Tensor:
        return self.delta

    def set_extra_state(self, state: Tensor) -> None:
        self.delta = state
