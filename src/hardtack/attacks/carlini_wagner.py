"""The attack of Carlini and Wagner (2017), l2: the nearest misclassified image as a smooth unconstrained problem.

    minimise over w:  ‖x' − x‖² + c · max(−margin(x'), −confidence),   x' = ½ + (½ + hair) · tanh w

It is minimised by Adam. Three known faults of published code are avoided. The label's logit is masked by −inf; by 0 it
would become the largest where all logits are negative. The result of the last update is evaluated. Pixels that are
exactly 0 or 1 can move: tanh never reaches ±1, so they would start at infinity. Here tanh spans slightly more than
[0,1] and w is limited to where the pixels leave it: every image starts as itself, and no pixel starts with a zero
slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.nearest import Nearest, fit_to_threat, margin_at, margin_gradient
from hardtack.attacks.outcome import AttackOutcome, succeeds
from hardtack.attacks.targets import TargetChoice, aim
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat

ANYWHERE = Threat.parse("linf:1")
# The smaller, the slower a pixel leaves 0 or 1: with 1e-6 it moves by 3e-6 in fifty steps.
HAIR = 0.01
_SPAN = 0.5 + HAIR
_FACE = math.atanh(0.5 / _SPAN)  # |w| of a pixel that is exactly 0 or 1
_DECAY, _SQUARE_DECAY, _CALM = 0.9, 0.999, 1e-8  # Adam's


def to_pixels(w: Tensor) -> Tensor:
    return (0.5 + _SPAN * w.tanh()).clamp(0, 1)


def from_pixels(x: Tensor) -> Tensor:
    return ((x - 0.5) / _SPAN).atanh()


@attacks.register("cw_search", steps=200, searches=9, help="Carlini and Wagner's l2 attack, c searched per image")
@attacks.register("cw", help="Carlini and Wagner's l2 attack with one fixed c")
@dataclass(frozen=True, kw_only=True)
class CarliniWagner(Attack):
    """Carlini and Wagner's l2 attack. The nearest success in l2 is kept, with preference for those in the ball of
    `threat`.

    threat       the ball whose successes are preferred and which decides what counts as fooled; by default any pixel
                 may take any value
    steps        updates of Adam in one search
    lr           learning rate of Adam, in units of w (pixels are about tanh w)
    c            weight of misclassification against the distance; with several searches the first one
    confidence   margin in logits that a success must have
    searches     values of c that are tried for each image: ten times larger until a success, then halfway between
                 success and failure; 1: the given c alone

    Paper: Carlini and Wagner 2017, Towards Evaluating the Robustness of Neural Networks (arXiv:1608.04644)
    """

    threat: Threat = ANYWHERE
    steps: int = 50
    lr: Number = 0.01
    c: Number = 1.0
    confidence: Number = 0.0
    searches: int = 1
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("l2",)

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.searches < 1:
            raise UserError(f"steps and searches must be at least 1, found {self.steps} and {self.searches}")
        for name, value in (("lr", self.lr), ("c", self.c)):
            if not value > 0:
                raise UserError(f"{name} must be positive, found {value}")
        if not self.confidence >= 0:
            raise UserError(f"confidence must not be negative, found {self.confidence}")

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
        nearest = Nearest.nothing(x)
        c = torch.full((len(x),), self.c, device=x.device)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        for number in range(self.searches):
            nearest, fooled = self._descend(model, x, goal, sign, c, nearest, number * self.steps)
            low, high = torch.where(fooled, low, c), torch.where(fooled, c, high)
            c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
        steps = self.searches * self.steps
        return fit_to_threat(nearest.found, self.threat, model, x, goal, sign, steps=steps, verdict=verdict)

    def _descend(
        self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, c: Tensor, nearest: Nearest, before: int
    ) -> tuple[Nearest, Tensor]:
        """One descent with one weight per image; returns also which images it fooled."""
        far = BALLS["l2"].size(torch.ones_like(x))
        fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        image, w = x, from_pixels(x)
        mean, square = torch.zeros_like(x), torch.zeros_like(x)
        for taken in range(self.steps + 1):
            if taken < self.steps:
                gradient, at = margin_gradient(model, image, goal, sign)
            else:
                at = margin_at(model, image, goal, sign)
            hit = succeeds(at.logits, goal, sign) & (at.value >= self.confidence)
            inside = self.threat.contains(image, x)
            # every success inside the ball is preferred to one outside
            distance = BALLS["l2"].size(image - x) + torch.where(inside, 0, far)
            nearest, fooled = nearest.after(at, hit, distance, inside, before + taken), fooled | hit
            if taken == self.steps:
                break

            pull = torch.where(at.value < self.confidence, c, 0)[:, None, None, None]
            slope = _SPAN * (1 - w.tanh() ** 2)
            gradient = (2 * (image - x) - pull * gradient) * slope
            mean = _DECAY * mean + (1 - _DECAY) * gradient
            square = _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * gradient**2
            size = (square / (1 - _SQUARE_DECAY ** (taken + 1))).sqrt() + _CALM
            w = (w - self.lr * mean / (1 - _DECAY ** (taken + 1)) / size).clamp(-_FACE, _FACE)
            image = to_pixels(w)
        return nearest, fooled
