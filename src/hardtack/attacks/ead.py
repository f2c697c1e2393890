"""EAD, the elastic-net attack (Chen et al. 2018): a sparse perturbation of small l1 norm.

    minimise   c · max(−margin(x'), −confidence) + ‖x' − x‖₂² + beta · ‖x' − x‖₁

It is minimised by FISTA: a gradient step on the smooth part, then every pixel moves towards its clean value by beta
and, where it is closer than that, takes it. c is searched for each image.
"""

from __future__ import annotations

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


@attacks.register("ead", help="EAD: sparse perturbation of small l1 norm (elastic net)")
@dataclass(frozen=True, kw_only=True)
class EAD(Attack):
    """Elastic-net attack: l1 and l2 together, whatever the norm of `threat`, which decides what counts as fooled.

    steps        steps in one search
    searches     values of c that are tried for each image: ten times larger while no success is found, then halfway
                 between the last success and the last failure
    beta         weight of the l1 norm
    c            first weight of misclassification against the distance
    lr           first step length, which falls with the square root of the steps that are left
    confidence   margin in logits that a success must have
    rule         the success that is kept: with the smallest elastic-net distance (en) or the smallest l1 norm, with
                 preference for those in the ball of threat

    The defaults are the paper's.

    Paper: Chen et al. 2018, EAD: Elastic-Net Attacks to Deep Neural Networks via Adversarial Examples
        (arXiv:1709.04114)
    """

    threat: Threat
    steps: int = 1000
    searches: int = 9
    beta: Number = 1e-3
    c: Number = 1e-3
    lr: Number = 0.01
    confidence: Number = 0.0
    rule: Literal["en", "l1"] = "en"
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("l1",)

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.searches < 1:
            raise UserError(f"steps and searches must be at least 1, found {self.steps} and {self.searches}")
        for name, value in (("beta", self.beta), ("c", self.c), ("lr", self.lr)):
            if not value > 0:
                raise UserError(f"{name} must be positive, found {value}")
        if not self.confidence >= 0:
            raise UserError(f"confidence must not be negative, found {self.confidence}")

    search, distances = search_nearest, nearest_distances

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        nearest = Nearest.nothing(x)
        c = torch.full_like(nearest.distance, self.c)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        for number in range(self.searches):
            nearest, fooled = self._descend(model, x, goal, sign, c, nearest, number * self.steps)
            low, high = torch.where(fooled, low, c), torch.where(fooled, c, high)
            c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
        length = BALLS["l1"].size(nearest.found.x_adv - x)
        return nearest._replace(distance=torch.where(nearest.distance.isinf(), torch.inf, length))

    def _descend(
        self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, c: Tensor, nearest: Nearest, before: int
    ) -> tuple[Nearest, Tensor]:
        """One descent with one weight per image; returns also which images it fooled."""
        fooled, image, ahead = torch.zeros_like(c, dtype=torch.bool), x, x
        for taken in range(self.steps + 1):
            at = margin_at(model, image, goal, sign)
            hit = succeeds(at.logits, goal, sign) & (at.value >= self.confidence)
            nearest = nearest.after(at, hit, *self._distance(image, x), before + taken)
            fooled = fooled | hit
            if taken == self.steps:
                break
            gradient, there = margin_gradient(model, ahead, goal, sign)
            zero = there.zero_gradient if before + taken == 0 else nearest.found.zero_gradient
            nearest = nearest._replace(found=nearest.found._replace(zero_gradient=zero))
            pull = torch.where(there.value < self.confidence, c, 0)[:, None, None, None]
            rate = self.lr * (1 - taken / self.steps) ** 0.5
            moved = self._shrink(ahead - rate * (2 * (ahead - x) - pull * gradient), x)
            ahead = moved + taken / (taken + 3) * (moved - image)
            image = moved
        return nearest, fooled

    def _shrink(self, z: Tensor, x: Tensor) -> Tensor:
        """Every pixel towards its clean value by beta, and into [0,1] (equation 4 of the paper)."""
        delta = z - x
        return (x + delta.sign() * (delta.abs() - self.beta).clamp_min(0)).clamp(0, 1)

    def _distance(self, image: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """What successes are compared by, and which images lie in the ball; those outside come after those inside.

        In double precision: large images are far behind, and differ in small numbers.
        """
        l1, l2 = BALLS["l1"].size(image - x), BALLS["l2"].size(image - x)
        distance = l1 if self.rule == "l1" else self.beta * l1 + l2**2
        inside = self.threat.contains(image, x)
        return distance.double() + torch.where(inside, 0.0, (1 + self.beta) * x[0].numel()), inside
