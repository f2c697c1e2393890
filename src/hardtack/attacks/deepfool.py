"""DeepFool (Moosavi-Dezfooli et al. 2016): steps to the nearest linearised decision boundary until the image is fooled.

    linearise the candidates' boundaries at the iterate → step onto the nearest → image + (1 + overshoot) · all steps

In linf, l2 and l1; the nearest boundary and the step are those of the threat's norm. The paper ignores that pixels end
at 0 and 1; here pixels that have reached their bound leave the rest of the step to the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.linearised import nearest_boundary
from hardtack.attacks.losses import margin
from hardtack.attacks.nearest import Nearest, margin_at, margin_gradient, nearest_distances, search_nearest
from hardtack.attacks.outcome import Step, succeeds
from hardtack.attacks.pool.search import Cost, pick
from hardtack.attacks.targets import TargetChoice, ranking
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat
from hardtack.threats.balls import can_look
from hardtack.threats.planes import TO_PLANE

_BEYOND = 1 + 1e-4  # a step goes so much further than the linearised boundary
_CHECK_EVERY = 5  # steps on a GPU between two looks at which images are finished


@attacks.register("deepfool", help="DeepFool: steps to the nearest linearised boundary, in linf, l2 or l1")
@dataclass(frozen=True, kw_only=True)
class DeepFool(Attack):
    """DeepFool in the norm of `threat`; images closer than its eps count as fooled.

    steps        most steps; an image leaves the batch when it is misclassified
    candidates   how many of the classes that are likeliest at the clean image are linearised, the label's among them,
                 with a backward pass for each other one
    overshoot    share by which the sum of all steps is extended beyond the boundary

    The defaults are the paper's; the fixed 1e-4 that its code adds to every step is left out. With a target class its
    boundary alone is linearised.

    Paper: Moosavi-Dezfooli et al. 2016, DeepFool: a Simple and Accurate Method to Fool Deep Neural Networks
        (arXiv:1511.04599)
    """

    threat: Threat
    steps: int = 50
    candidates: int = 10
    overshoot: Number = 0.02
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("linf", "l2", "l1")

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, found {self.steps}")
        if self.candidates < 2:
            raise UserError(f"candidates counts the label's class too and must be at least 2, found {self.candidates}")
        if not self.overshoot >= 0:
            raise UserError(f"overshoot must not be negative, found {self.overshoot}")

    leaves_when_fooled: ClassVar[bool] = True

    search, distances = search_nearest, nearest_distances

    def batch_cost(self, classes: int, shape: tuple[int, ...]) -> Cost:
        each = 1 if self.target is not None else min(self.candidates, classes) - 1
        return Cost(self.steps + 2 + (self.target is not None), self.steps * each)

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        nearest, rows = Nearest.nothing(x), torch.arange(len(x), device=x.device)
        clean, point, total, among = x, x, torch.zeros_like(x), None
        for taken in range(self.steps):
            rise, normal, at = self._linearise(model, point, goal, sign, among)
            if among is None and sign > 0:
                among = ranking(at.logits, goal)[:, : self.candidates - 1]
            hit = succeeds(at.logits, goal, sign)
            nearest = nearest.put(rows, self._seen(nearest.of(rows), at, hit, clean, taken))
            if can_look(x) or taken % _CHECK_EVERY == _CHECK_EVERY - 1:
                left = (~hit).nonzero()[:, 0]
                if not len(left):
                    return nearest
                if len(left) < len(rows):
                    rows, clean, point, total = rows[left], clean[left], point[left], total[left]
                    goal, hit, rise, normal = goal[left], hit[left], rise[left], normal[left]
                    among = among if among is None else among[left]
            total = total + TO_PLANE[self.threat.norm](point, normal, -_BEYOND * rise)
            point = pick(hit, point, (clean + (1 + self.overshoot) * total).clamp(0, 1))
        at = margin_at(model, point, goal, sign)
        hit = succeeds(at.logits, goal, sign)
        return nearest.put(rows, self._seen(nearest.of(rows), at, hit, clean, self.steps))

    def _seen(self, nearest: Nearest, at: Step, hit: Tensor, x: Tensor, taken: int) -> Nearest:
        return nearest.after(at, hit, self.threat.size(at.x_adv - x), self.threat.contains(at.x_adv, x), taken)

    def _linearise(
        self, model: nn.Module, point: Tensor, goal: Tensor, sign: float, among: Tensor | None
    ) -> tuple[Tensor, Tensor, Step]:
        """Of the nearest boundary: how far its class is ahead, the gradient of that; and the values at the point."""
        if sign < 0:
            normal, at = margin_gradient(model, point, goal, sign)
            return at.value, normal, at
        norm, several = self.threat.norm, self.candidates - 1
        logits, rise, normal = nearest_boundary(
            model, point, goal, norm=norm, count=lambda classes: min(several, classes - 1), among=among
        )
        zero = ~(normal.flatten(1).abs().amax(dim=1) > 0)
        rise, normal = rise.nan_to_num(0.0, 0.0, 0.0), normal.nan_to_num(0.0, 0.0, 0.0)
        return rise, normal, Step(point, point, margin(logits, goal), logits, zero)
