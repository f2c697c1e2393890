"""FMN, fast minimum-norm attacks (Pintor et al. 2021): how far an image is from a wrong answer, in linf, l2 and l1.

    step along the margin's gradient → project to a ball of this image's own radius, and to the box
    the radius: shrinks while the answer is wrong, grows while it is right, both ever more gently

Until the first wrong answer the radius is the distance at which the linearised model would give one. One run says
at which radius each image falls, and so draws the whole curve of robust accuracy against eps.

What any search for the nearest success needs is here as well: `Nearest` remembers it, `verifier` holds it to a threat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.contract import Called
from hardtack.attacks.losses import margin
from hardtack.attacks.outcome import Outcome, Step, aim, nothing_yet, succeeds
from hardtack.attacks.preserve_state import preserve_state
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat
from hardtack.threats.planes import DUAL

# The norm in which a gradient is measured: a step of length eps gains at most eps times it.
_TINY = 1e-30


class Nearest(NamedTuple):
    """The nearest success so far; where there is none, the image that came closest to being one."""

    found: Outcome
    distance: Tensor  # of the nearest success, inf where there is none

    @classmethod
    def nothing(cls, x: Tensor) -> Nearest:
        return cls(nothing_yet(x), torch.full((len(x),), torch.inf, device=x.device))

    def after(self, at: Step, hit: Tensor, distance: Tensor, inside: Tensor, taken: int) -> Nearest:
        """`at` are the images looked at, after so many steps; `inside` says which lie in the threat's ball."""
        found, first = self.found, taken == 0
        closer = hit & (distance < self.distance)
        take = closer | (~hit & self.distance.isinf() & (at.value > found.best_loss))
        found = Outcome(
            torch.where(take[:, None, None, None], at.x_adv, found.x_adv),
            found.fooled | hit,
            torch.where(hit & inside & (found.broken_at < 0), taken, found.broken_at),
            at.value if first else found.first_loss,
            torch.where(take, at.value, found.best_loss),
            at.zero_gradient if first else found.zero_gradient,
            found.not_finite | ~at.logits.isfinite().all(dim=1),
        )
        return Nearest(found, torch.where(closer, distance, self.distance))


def look(model: nn.Module, image: Tensor, goal: Tensor, sign: float) -> tuple[Tensor, Step]:
    """The gradient that widens the margin of the wrong answer (0 where it is not a number), and what was seen."""

    def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits = model(image).float()
        value = sign * margin(logits, goal)
        return value.sum(), (value.detach(), logits.detach())

    gradient, (value, logits) = input_gradient(objective, image)
    zero = ~(gradient.flatten(1).abs().amax(dim=1) > 0)
    return gradient.nan_to_num(0.0, 0.0, 0.0), Step(image, image, value, logits, zero)


@torch.no_grad()
def glance(model: nn.Module, image: Tensor, goal: Tensor, sign: float) -> Step:
    """What `look` sees, without the gradient."""
    logits = model(image).float()
    never = torch.zeros(len(image), dtype=torch.bool, device=image.device)
    return Step(image, image, sign * margin(logits, goal), logits, never)


def verifier(
    found: Outcome, threat: Threat, model: nn.Module, x: Tensor, goal: Tensor, sign: float, *, steps: int, verdict: bool
) -> Outcome:
    """The images found, where they lie outside the threat's ball their projections, and whether those fool.

    A projection may still fool: the nearest image in l2 clipped to a ball of linf, say. Only a `verdict`, one more
    forward pass, tells.
    """
    inside = threat.contains(found.x_adv, x)
    x_adv = torch.where(inside[:, None, None, None], found.x_adv, threat.project(found.x_adv, x))
    if not verdict:
        return found._replace(x_adv=x_adv, fooled=found.fooled & inside)
    at = glance(model, x_adv, goal, sign)
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
class MinimumNorm(Called):
    """Fast minimum-norm attack, in the norm of `threat`; images nearer than its eps count as fooled.

    `relative_step` is the Euclidean length of the first step in multiples of the longest perturbation in the
    current ball; it falls along a cosine to a hundredth. `gamma` and `final_gamma` are the first and last share
    by which the radius changes.
    """

    threat: Threat
    steps: int = 100
    relative_step: Number = 2.0
    gamma: Number = 0.05
    final_gamma: Number = 0.001
    target: Literal["random", "least_likely", "runner_up"] | None = None
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
        """The nearest adversarial images, however far, and how far that is: inf where none was found, 0 where the
        clean image is one."""
        with preserve_state(model, mode=self.mode):
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
    ) -> Outcome:
        """The loop alone: no host synchronisation, and the caller keeps the model `preserve_state`."""
        goal, sign = aim(model, x, y, keys, self.seed, target, self.target)
        found = self._minimise(model, x, goal, sign).found
        return verifier(found, self.threat, model, x, goal, sign, steps=self.steps, verdict=verdict)

    def _minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float) -> Nearest:
        ball, slope = self.threat.ball, BALLS[DUAL[self.threat.norm]].size
        whole = ball.size(torch.ones_like(x))  # no perturbation is larger
        longest = x[0].numel() ** 0.5 if self.threat.norm == "linf" else 1.0  # Euclidean, in the unit ball
        image, eps, nearest = x, torch.zeros_like(whole), Nearest.nothing(x)
        for taken in range(self.steps):
            gradient, at = look(model, image, goal, sign)
            hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
            nearest = nearest.after(at, hit, distance, self.threat.contains(image, x), taken)

            cosine = (1 + math.cos(math.pi * taken / self.steps)) / 2
            gamma = self.final_gamma + (self.gamma - self.final_gamma) * cosine
            grown = eps * (1 + gamma)
            # the linear estimate alone would creep up to the boundary and not cross it
            linear = distance + (-at.value).clamp_min(0) / slope(gradient).clamp_min(_TINY)
            grown = torch.where(nearest.distance.isinf(), torch.maximum(grown, linear), grown)
            eps = torch.where(hit, torch.minimum(eps * (1 - gamma), nearest.distance), grown)
            eps = torch.minimum(eps.nan_to_num(torch.inf), whole)

            length = self.relative_step * (0.01 + 0.99 * cosine) * longest * eps
            image = ball.project(image + BALLS["l2"].steepest_step(gradient, image, length), x, eps)
        at = glance(model, image, goal, sign)
        hit, distance = succeeds(at.logits, goal, sign), ball.size(image - x)
        return nearest.after(at, hit, distance, self.threat.contains(image, x), self.steps)
