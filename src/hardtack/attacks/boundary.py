"""Boundary attack (Brendel et al. 2018): a random walk along the decision boundary, from predicted classes alone, l2.

    from a misclassified image: a random step on the sphere around the clean image → a step towards the clean image
    → kept where it is still misclassified and closer

Both step lengths adapt to each image's own rates of success: along the sphere half of the points should fool the model,
towards the image one in four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.decision_based import Approach, fools, to_boundary
from hardtack.attacks.nearest import Nearest, nearest_distances, search_nearest
from hardtack.attacks.pool.search import Cost, pick
from hardtack.attacks.targets import TargetChoice
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat

_LOOK_EVERY = 10  # steps between two queries on the sphere, which measure how often its points fool the model
_SPHERE_WINDOW, _STEP_WINDOW = 100, 30  # such looks, after which the rates decide about the step lengths
_BISECTIONS = 10  # between the starting point and the image
_TINY = 1e-30


@attacks.register("boundary", help="Boundary attack: random walk along the boundary, sees predicted classes only, l2")
@dataclass(frozen=True, kw_only=True)
class Boundary(Attack):
    """Boundary attack: l2, whatever the norm of `threat`, which decides what counts as fooled.

    steps            most steps of the walk, each with two queries
    spherical_step   length of the first step along the sphere around the image, as a share of the distance
    source_step      length of the first step towards the image, as a share of the distance
    adaptation       factor by which these lengths change when too few or too many steps succeed
    converged        an image whose source step falls below it is finished and leaves the batch
    tries            random images that are tried until one is misclassified, to start from

    The defaults are foolbox's. With a target class the start must belong to it.

    Paper: Brendel et al. 2018, Decision-Based Adversarial Attacks: Reliable Attacks Against Black-Box Machine
        Learning Models (arXiv:1712.04248)
    """

    threat: Threat
    steps: int = 25_000
    spherical_step: Number = 0.01
    source_step: Number = 0.01
    adaptation: Number = 1.5
    converged: Number = 1e-7
    tries: int = 100
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("l2",)
    uses_logit_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.tries < 1:
            raise UserError(f"steps and tries must be at least 1, found {self.steps} and {self.tries}")
        for name in ("spherical_step", "source_step", "converged"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, found {getattr(self, name)}")
        if not self.adaptation > 1:
            raise UserError(f"adaptation must be above 1, found {self.adaptation}")

    search, distances = search_nearest, nearest_distances

    def batch_cost(self, classes: int, shape: tuple[int, ...]) -> Cost:
        return Cost(1 + self.tries + _BISECTIONS + self.steps + -(-self.steps // _LOOK_EVERY) + 1)

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        approach = Approach(model, x, goal, sign, keys, ball=BALLS["l2"], tries=self.tries)
        rows = approach.rows
        if not len(rows):
            return approach.nearest()
        clean, goal, keys = x[rows], goal[rows], keys[rows]
        point = to_boundary(model, clean, approach.point[rows], goal, sign, norm="l2", rounds=_BISECTIONS)
        approach.offer(point, self.threat.contains(point, clean), 0)
        sphere = _Rate(torch.full_like(point[:, 0, 0, 0], self.spherical_step))
        source = _Rate(torch.full_like(sphere.length, self.source_step))
        for taken in range(self.steps):
            around, moved = _proposals(clean, point, sphere.length, source.length, randomness.fold(keys, taken))
            hit = fools(model, moved, goal, sign)
            distance = BALLS["l2"].size(moved - clean)
            point = pick(hit & (distance < BALLS["l2"].size(point - clean)), moved, point)
            if taken % _LOOK_EVERY:
                continue
            sphere.count(fools(model, around, goal, sign))
            source.count(hit)
            factor = sphere.decide(_SPHERE_WINDOW, low=0.2, high=0.5, by=self.adaptation)
            sphere.length, source.length = sphere.length * factor, source.length * factor
            source.length = source.length * source.decide(_STEP_WINDOW, low=0.1, high=0.25, by=self.adaptation)
            if taken % (_LOOK_EVERY * _STEP_WINDOW):
                continue
            approach.offer(point, self.threat.contains(point, clean), taken + 1)
            left = (source.length >= self.converged).nonzero()[:, 0]
            if not len(left):
                return approach.nearest()
            if len(left) < len(approach.rows):
                approach.rows, clean, point = approach.rows[left], clean[left], point[left]
                goal, keys = goal[left], keys[left]
                sphere, source = sphere.of(left), source.of(left)
        approach.offer(point, self.threat.contains(point, clean), self.steps)
        return approach.nearest()


class _Rate:
    """A step length of every image, and how often its steps have succeeded since it last changed."""

    def __init__(self, length: Tensor) -> None:
        self.length, self.tried, self.hits = length, torch.zeros_like(length), torch.zeros_like(length)

    def count(self, hit: Tensor) -> None:
        self.tried, self.hits = self.tried + 1, self.hits + hit

    def decide(self, window: int, *, low: float, high: float, by: float) -> Tensor:
        """The factor by which lengths change: after so many tries a rate above `high` lengthens, below `low` shortens.

        A rate that changed something is measured anew.
        """
        rate, full = self.hits / self.tried.clamp_min(1), self.tried >= window
        up, down = full & (rate > high), full & (rate < low)
        self.tried, self.hits = (torch.where(up | down, 0, part) for part in (self.tried, self.hits))
        return torch.where(up, by, torch.where(down, 1 / by, 1.0))

    def of(self, rows: Tensor) -> _Rate:
        rate = _Rate(self.length[rows])
        rate.tried, rate.hits = self.tried[rows], self.hits[rows]
        return rate


def _proposals(clean: Tensor, point: Tensor, spherical: Tensor, source: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """A point on the sphere through `point` around the clean image, and from there one towards the image."""

    def wide(values: Tensor) -> Tensor:
        return values.reshape(-1, 1, 1, 1)

    size, towards = BALLS["l2"].size, clean - point
    far = size(towards)
    noise = randomness.normal(keys, tuple(clean.shape[1:])).to(clean.dtype)
    along = (noise * towards).flatten(1).sum(dim=1) / (far**2).clamp_min(_TINY)
    noise = noise - wide(along) * towards
    noise = noise * wide(spherical * far / size(noise).clamp_min(_TINY))
    around = (clean + (noise - towards) / wide((spherical**2 + 1).sqrt())).clamp(0, 1)
    # the box may have brought the point off the sphere: that part of the way counts as gone
    left = size(clean - around)
    length = (source * far + left - far).clamp_min(0) / left.clamp_min(_TINY)
    return around, (around + wide(length) * (clean - around)).clamp(0, 1)
