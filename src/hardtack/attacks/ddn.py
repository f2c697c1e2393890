"""DDN, decoupled direction and norm (Rony et al. 2019): the smallest l2 perturbation.

step along the gradient of the cross-entropy → radius × (1 − γ) where the model is fooled, else × (1 + γ)
→ the perturbation is scaled to that radius, and clipped to the box
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.losses import cross_entropy
from hardtack.attacks.nearest import Nearest, margin_at, margin_gradient, nearest_distances, search_nearest
from hardtack.attacks.outcome import succeeds
from hardtack.attacks.targets import TargetChoice
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat

_TINY = 1e-30
_LAST_STEP = 0.01  # of the first step's length


@attacks.register("ddn", help="smallest l2 perturbation that fools (decoupled direction and norm)")
@dataclass(frozen=True, kw_only=True)
class DDN(Attack):
    """Decoupled direction and norm: l2, whatever the norm of `threat`, which decides what counts as fooled.

    steps       steps in all; the paper also reports 300 and 1000
    gamma       share by which the radius changes at every step
    init_norm   the first radius

    A step has length 1, which falls along a cosine to a hundredth. The defaults are the paper's; its rounding to 256
    grey levels is left out.

    Paper: Rony et al. 2019, Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and
        Defenses (arXiv:1811.09600)
    """

    threat: Threat
    steps: int = 100
    gamma: Number = 0.05
    init_norm: Number = 1.0
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("l2",)

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, found {self.steps}")
        if not 0 < self.gamma < 1:
            raise UserError(f"gamma must lie inside (0,1), found {self.gamma}")
        if not self.init_norm > 0:
            raise UserError(f"init_norm must be positive, found {self.init_norm}")

    search, distances = search_nearest, nearest_distances

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        ball, image, nearest = BALLS["l2"], x, Nearest.nothing(x)
        radius, whole = torch.full_like(nearest.distance, self.init_norm), ball.size(torch.ones_like(x))
        for taken in range(self.steps):
            gradient, at = margin_gradient(model, image, goal, sign, climbed=cross_entropy)
            hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
            nearest = nearest.after(at, hit, distance, self.threat.contains(image, x), taken)

            cosine = (1 + math.cos(math.pi * taken / self.steps)) / 2
            length = torch.full_like(radius, _LAST_STEP + (1 - _LAST_STEP) * cosine)
            delta = image - x + ball.steepest_step(gradient, image, length)
            radius = torch.minimum(radius * torch.where(hit, 1 - self.gamma, 1 + self.gamma), whole)
            scale = radius / ball.size(delta).clamp_min(_TINY)
            image = (x + delta * scale.reshape(-1, *[1] * (x.dim() - 1))).clamp(0, 1)
        at = margin_at(model, image, goal, sign)
        hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
        return nearest.after(at, hit, distance, self.threat.contains(image, x), self.steps)
