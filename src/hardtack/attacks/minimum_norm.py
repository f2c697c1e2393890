"""FMN, fast minimum-norm attacks (Pintor et al. 2021): how far an image is from a wrong answer, in linf, l2 and l1.

    step along the margin's gradient → project to a ball of this image's own radius, and to the box
    the radius shrinks while the prediction is wrong and grows while it is right, by smaller and smaller shares

Until the first misclassification the radius is the distance at which the linearised model would be wrong. One run finds
for each image the radius at which it is broken, and so the whole curve of robust accuracy against eps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.nearest import Nearest, margin_at, margin_gradient, nearest_distances, search_nearest
from hardtack.attacks.outcome import succeeds
from hardtack.attacks.targets import TargetChoice
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat
from hardtack.threats.planes import DUAL

_TINY = 1e-30


@attacks.register("fmn", help="smallest perturbation that fools, in the threat's norm (fast minimum-norm)")
@dataclass(frozen=True, kw_only=True)
class MinimumNorm(Attack):
    """Fast minimum-norm attack, in the norm of `threat`; images closer than its eps count as fooled.

    relative_step   Euclidean length of the first step, in multiples of the longest perturbation in the current ball; it
                    falls along a cosine to a hundredth
    gamma           share by which the radius changes at first
    final_gamma     share by which the radius changes at last

    Paper: Pintor et al. 2021, Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints
        (arXiv:2102.12827)
    """

    threat: Threat
    steps: int = 100
    relative_step: Number = 2.0
    gamma: Number = 0.05
    final_gamma: Number = 0.001
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("linf", "l2", "l1")

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, found {self.steps}")
        if not self.relative_step > 0:
            raise UserError(f"relative_step must be positive, found {self.relative_step}")
        if not 0 < self.final_gamma <= self.gamma < 1:
            raise UserError(f"gamma must fall inside (0,1), found {self.gamma} to {self.final_gamma}")

    search, distances = search_nearest, nearest_distances

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        ball, slope = self.threat.ball, BALLS[DUAL[self.threat.norm]].size
        whole = ball.size(torch.ones_like(x))  # no perturbation is larger
        longest = x[0].numel() ** 0.5 if self.threat.norm == "linf" else 1.0  # Euclidean, in the unit ball
        image, eps, nearest = x, torch.zeros_like(whole), Nearest.nothing(x)
        for taken in range(self.steps):
            gradient, at = margin_gradient(model, image, goal, sign)
            hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
            nearest = nearest.after(at, hit, distance, self.threat.contains(image, x), taken)

            cosine = (1 + math.cos(math.pi * taken / self.steps)) / 2
            gamma = self.final_gamma + (self.gamma - self.final_gamma) * cosine
            grown = eps * (1 + gamma)
            # with the linear estimate alone the search would approach the boundary without crossing it
            linear = distance + (-at.value).clamp_min(0) / slope(gradient).clamp_min(_TINY)
            grown = torch.where(nearest.distance.isinf(), torch.maximum(grown, linear), grown)
            eps = torch.where(hit, torch.minimum(eps * (1 - gamma), nearest.distance), grown)
            eps = torch.minimum(eps.nan_to_num(torch.inf), whole)

            length = self.relative_step * (0.01 + 0.99 * cosine) * longest * eps
            image = ball.project(image + BALLS["l2"].steepest_step(gradient, image, length), x, eps)
        at = margin_at(model, image, goal, sign)
        hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
        return nearest.after(at, hit, distance, self.threat.contains(image, x), self.steps)
