"""FMN, fast minimum-norm attacks (Pintor et al. 2021): how far an image is from a wrong answer, in linf, l2 and l1.

    step along the margin's gradient → project to a ball of this image's own radius, and to the box
    the radius shrinks while the prediction is wrong and grows while it is right, by smaller and smaller shares

Until the first misclassification the radius is the distance at which the linearised model would be wrong. One run finds
for each image the radius at which it is broken, and so the whole curve of robust accuracy against eps.

The parts that any search for the nearest success needs are here as well: `Nearest` keeps it, `fit_to_threat` projects
it to the ball of a threat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.contract import Attack
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.losses import margin
from hardtack.attacks.outcome import AttackOutcome, Step, nothing_yet, succeeds
from hardtack.attacks.preserve_state import preserve_state
from hardtack.attacks.targets import TargetChoice, aim
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat
from hardtack.threats.planes import DUAL

_TINY = 1e-30


class Nearest(NamedTuple):
    """The nearest success so far; where there is none, the image that came closest to being one."""

    found: AttackOutcome
    distance: Tensor  # of the nearest success, inf where there is none

    @classmethod
    def nothing(cls, x: Tensor) -> Nearest:
        return cls(nothing_yet(x), torch.full((len(x),), torch.inf, device=x.device))

    def after(self, at: Step, hit: Tensor, distance: Tensor, inside: Tensor, taken: int) -> Nearest:
        """`at`: the images evaluated after so many steps; `inside` says which lie in the threat's ball."""
        found, first = self.found, taken == 0
        closer = hit & (distance < self.distance)
        take = closer | (~hit & self.distance.isinf() & (at.value > found.best_loss))
        found = AttackOutcome(
            torch.where(take[:, None, None, None], at.x_adv, found.x_adv),
            found.fooled | hit,
            torch.where(hit & inside & (found.broken_at < 0), taken, found.broken_at),
            at.value if first else found.first_loss,
            torch.where(take, at.value, found.best_loss),
            at.zero_gradient if first else found.zero_gradient,
            found.not_finite | ~at.logits.isfinite().all(dim=1),
        )
        return Nearest(found, torch.where(closer, distance, self.distance))


def margin_gradient(model: nn.Module, image: Tensor, goal: Tensor, sign: float) -> tuple[Tensor, Step]:
    """The gradient of the margin of the wrong class (0 where it is not a number), and the values at the image."""

    def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits = model(image).float()
        value = sign * margin(logits, goal)
        return value.sum(), (value.detach(), logits.detach())

    gradient, (value, logits) = input_gradient(objective, image)
    zero = ~(gradient.flatten(1).abs().amax(dim=1) > 0)
    return gradient.nan_to_num(0.0, 0.0, 0.0), Step(image, image, value, logits, zero)


@torch.no_grad()
def margin_at(model: nn.Module, image: Tensor, goal: Tensor, sign: float) -> Step:
    """The values of `margin_gradient`, without the gradient."""
    logits = model(image).float()
    never = torch.zeros(len(image), dtype=torch.bool, device=image.device)
    return Step(image, image, sign * margin(logits, goal), logits, never)


def fit_to_threat(
    found: AttackOutcome,
    threat: Threat,
    model: nn.Module,
    x: Tensor,
    goal: Tensor,
    sign: float,
    *,
    steps: int,
    verdict: bool,
) -> AttackOutcome:
    """The images found or, where they lie outside the threat's ball, their projections.

    A projection may still fool the model, for example the nearest image in l2 clipped to a ball of linf. Only with
    `verdict`, which takes one more forward pass, is this known.
    """
    inside = threat.contains(found.x_adv, x)
    x_adv = torch.where(inside[:, None, None, None], found.x_adv, threat.project(found.x_adv, x))
    if not verdict:
        return found._replace(x_adv=x_adv, fooled=found.fooled & inside)
    at = margin_at(model, x_adv, goal, sign)
    fooled = succeeds(at.logits, goal, sign)
    late = torch.where(found.broken_at < 0, steps, found.broken_at)
    return found._replace(
        x_adv=x_adv,
        fooled=fooled,
        broken_at=torch.where(fooled, late, -1),
        best_loss=at.value,
        not_finite=found.not_finite | ~at.logits.isfinite().all(dim=1),
    )


@attacks.register("fmn", help="smallest perturbation that fools, in the threat's norm (fast minimum-norm)")
@dataclass(frozen=True, kw_only=True)
class MinimumNorm(Attack):
    """Fast minimum-norm attack, in the norm of `threat`; images closer than its eps count as fooled.

    `relative_step` is the Euclidean length of the first step in multiples of the longest perturbation in the
    current ball; it falls along a cosine to a hundredth. `gamma` and `final_gamma` are the first and last share
    by which the radius changes.
    """

    threat: Threat
    steps: int = 100
    relative_step: Number = 2.0
    gamma: Number = 0.05
    final_gamma: Number = 0.001
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, found {self.steps}")
        if not self.relative_step > 0:
            raise UserError(f"relative_step must be positive, found {self.relative_step}")
        if not 0 < self.final_gamma <= self.gamma < 1:
            raise UserError(f"gamma must fall inside (0,1), found {self.gamma} to {self.final_gamma}")

    def distances(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The nearest adversarial images, at any distance, and their distances.

        The distance is inf where none was found, and 0 where the clean image is misclassified.
        """
        with preserve_state(model, mode=self.mode), guard_input(model):
            goal, sign = aim(model, x, y, keys, self.seed, None if target is None else target.clone(), self.target)
            nearest = self._minimise(model, x.detach().clone(), goal.clone(), sign)
            return nearest.found.x_adv, nearest.distance

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> AttackOutcome:
        """The loop alone, without host synchronisation; the caller has put the model into `preserve_state`."""
        goal, sign = aim(model, x, y, keys, self.seed, target, self.target)
        found = self._minimise(model, x, goal, sign).found
        return fit_to_threat(found, self.threat, model, x, goal, sign, steps=self.steps, verdict=verdict)

    def _minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float) -> Nearest:
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
