"""HopSkipJump (Chen et al. 2020): the nearest misclassified image, from predicted classes alone, in l2 or linf.

at the boundary: the predictions at random points around it give the direction of the gradient (Monte Carlo)
→ a step in that direction, halved until it fools the model → bisection back to the boundary
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.decision_based import Approach, fools, to_boundary
from hardtack.attacks.gradients import in_stacks
from hardtack.attacks.nearest import Nearest, nearest_distances, search_nearest
from hardtack.attacks.pool.search import Cost, pick
from hardtack.attacks.targets import TargetChoice
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import BALLS, Threat

_FIRST_RADIUS = 0.1  # of the points around the first boundary point
_HALVINGS = 20  # of a step, at most
_TINY = 1e-30


@attacks.register(
    "hopskipjump", help="HopSkipJump: nearest misclassified image, sees predicted classes only, l2 or linf"
)
@dataclass(frozen=True, kw_only=True)
class HopSkipJump(Attack):
    """HopSkipJump in l2, or in linf if that is the norm of `threat`.

    steps         iterations: a gradient estimate, a step along it, and bisection back to the boundary
    samples       queries of the first estimate; that of iteration t takes √t times as many
    max_samples   most queries of an estimate
    gamma         how precisely the boundary is searched; larger is coarser
    tries         random images that are tried until one is misclassified, to start from

    The defaults are the paper's; it stops at 1000 to 25,000 queries. With a target class the start must belong to it,
    which random images seldom do; where none is found the image stays as it is.

    Paper: Chen et al. 2020, HopSkipJumpAttack: A Query-Efficient Decision-Based Attack (arXiv:1904.02144)
    """

    threat: Threat
    steps: int = 64
    samples: int = 100
    max_samples: int = 10_000
    gamma: Number = 1.0
    tries: int = 100
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("linf", "l2")
    uses_logit_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        for name in ("steps", "samples", "max_samples", "tries"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, found {getattr(self, name)}")
        if not self.gamma > 0:
            raise UserError(f"gamma must be positive, found {self.gamma}")

    search, distances = search_nearest, nearest_distances

    def batch_cost(self, classes: int, shape: tuple[int, ...]) -> Cost:
        """At most: every step is halved to the end, and the search stays one query behind its verification."""
        each = self._rounds(math.prod(shape)) + 1 + _HALVINGS
        samples = sum(self._samples(taken) for taken in range(self.steps))
        return Cost(1 + self.tries + self._rounds(math.prod(shape)) + samples + each * self.steps + 1)

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        approach = Approach(model, x, goal, sign, keys, ball=BALLS[self._norm], tries=self.tries)
        rows = approach.rows
        if not len(rows):
            return approach.nearest()
        size, rounds = approach.ball.size, self._rounds(x[0].numel())
        clean, goal, keys, far = x[rows], goal[rows], keys[rows], approach.point[rows]
        for taken in range(self.steps + 1):
            point = to_boundary(model, clean, far, goal, sign, norm=self._norm, rounds=rounds)
            approach.offer(point, self.threat.contains(point, clean), taken)
            if taken == self.steps:
                break
            # the bisection ends within this distance of the boundary, so that both sides of it are sampled
            radius = self._precision(x[0].numel()) * size(far - clean) * self._spread(x[0].numel())
            radius = torch.full_like(radius, _FIRST_RADIUS) if taken == 0 else radius
            direction = self._direction(model, point, goal, sign, keys, taken, radius)
            length = size(point - clean) / math.sqrt(taken + 1)
            far = self._step(model, point, goal, sign, direction, length)
        return approach.nearest()

    # ------------------------------------------------------------ the parts of an iteration

    def _direction(
        self, model: nn.Module, point: Tensor, goal: Tensor, sign: float, keys: Tensor, taken: int, radius: Tensor
    ) -> Tensor:
        """The direction in which points fool the model, of length 1 (l2), or the signs of its pixels (linf)."""
        wide, count = radius.reshape(-1, 1, 1, 1), self._samples(taken)
        hits, total, fooling = torch.zeros_like(radius), torch.zeros_like(point), torch.zeros_like(point)
        for noise in in_stacks(self._noises(point, randomness.fold(keys, taken), count), point):
            around = (point + wide * noise).clamp(0, 1)
            copies = len(noise)
            hit = fools(model, around.flatten(0, 1), goal.repeat(copies), sign).unflatten(0, (copies, -1))
            moved = (around - point) / wide
            total += moved.sum(dim=0)
            fooling += torch.where(hit[:, :, None, None, None], moved, 0).sum(dim=0)
            hits += hit.sum(dim=0)
        # decisions are +1 and −1, their mean is subtracted; where all agree, their own sign stays
        mean = (2 * hits / count - 1).reshape(-1, 1, 1, 1)
        estimate = torch.where(mean.abs() == 1, mean * total, 2 * fooling - total - mean * total) / count
        if self._norm == "linf":
            return estimate.sign()
        return estimate / BALLS["l2"].size(estimate).clamp_min(_TINY).reshape(-1, 1, 1, 1)

    def _noises(self, x: Tensor, keys: Tensor, count: int) -> Iterator[Tensor]:
        """Directions of l2 length 1: uniform on the sphere or, in linf, from a uniform cube."""
        shape = tuple(x.shape[1:])
        for number in range(count):
            if self._norm == "linf":
                noise = randomness.uniform(keys, shape, number) * 2 - 1
            else:
                noise = randomness.normal(keys, shape, number)
            yield (noise / BALLS["l2"].size(noise).clamp_min(_TINY).reshape(-1, 1, 1, 1)).to(x.dtype)

    def _step(
        self, model: nn.Module, point: Tensor, goal: Tensor, sign: float, direction: Tensor, length: Tensor
    ) -> Tensor:
        """As far in the direction as fools the model: the length is halved until it does, else the point stays."""
        far, rows = point.clone(), torch.arange(len(point), device=point.device)
        for halving in range(_HALVINGS):
            wide = (length[rows] / 2**halving).reshape(-1, 1, 1, 1)
            moved = (point[rows] + wide * direction[rows]).clamp(0, 1)
            hit = fools(model, moved, goal[rows], sign)
            far = far.index_copy(0, rows, pick(hit, moved, far[rows]))
            rows = rows[~hit]
            if not len(rows):
                break
        return far

    # ------------------------------------------------------------ how precisely

    @property
    def _norm(self) -> str:
        return "linf" if self.threat.norm == "linf" else "l2"

    def _samples(self, taken: int) -> int:
        return min(int(self.samples * math.sqrt(taken + 1)), self.max_samples)

    def _spread(self, pixels: int) -> float:
        return math.sqrt(pixels) if self._norm == "l2" else float(pixels)

    def _precision(self, pixels: int) -> float:
        """The share of the way to which the bisection finds the boundary (the paper's theta)."""
        return self.gamma / (pixels * self._spread(pixels))

    def _rounds(self, pixels: int) -> int:
        """fp32 does not resolve more than 24 halvings of the way."""
        return min(max(1, math.ceil(-math.log2(min(self._precision(pixels), 0.5)))), 24)
