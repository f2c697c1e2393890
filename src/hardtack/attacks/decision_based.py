"""What attacks share that see nothing but the predicted class (Boundary attack, HopSkipJump).

They begin at an image that is misclassified already, at any distance, and come closer. Every query is an image in
[0,1], and its random numbers belong to the attacked image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hardtack.attacks.nearest import Nearest
from hardtack.attacks.outcome import nothing_yet, succeeds
from hardtack.attacks.pool.search import pick
from hardtack.base import randomness
from hardtack.threats import Ball

_TILES = (0, 1, 2, 4, 8)  # of starting images, a side; 0: every pixel is drawn by itself
_START = 50  # the first of the streams that starting images are drawn from


@torch.no_grad()
def fools(model: nn.Module, images: Tensor, goal: Tensor, sign: float) -> Tensor:
    """Whether each image is misclassified (or, with `sign` −1, classified as the goal): one query of the model."""
    return succeeds(model(images).float(), goal, sign)


def starting_points(
    model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor, *, tries: int
) -> tuple[Tensor, Tensor]:
    """For each image one that fools the model, and whether there is one: itself, else the first of `tries` random ones.

    Random images are uniform noise on tiles of several sizes, as many models give all images of noise on single pixels
    the same class.
    """
    start, found = x.clone(), fools(model, x, goal, sign)
    rows, shape = (~found).nonzero()[:, 0], tuple(x.shape[1:])
    for number in range(tries):
        if not len(rows):
            break
        side = _TILES[number % len(_TILES)]
        coarse = (shape[0], *(min(side, edge) if side else edge for edge in shape[1:]))
        noise = randomness.uniform(keys[rows], coarse, _START + number).to(x.dtype)
        noise = noise if coarse == shape else nn.functional.interpolate(noise, size=shape[1:], mode="nearest")
        hit = fools(model, noise, goal[rows], sign)
        start = start.index_copy(0, rows, pick(hit, noise, x[rows]))
        found = found.index_copy(0, rows, hit)
        rows = rows[~hit]
    return start, found


def between(norm: str, x: Tensor, far: Tensor, share: Tensor) -> Tensor:
    """A point on the way from `x` (share 0) to `far` (1): straight or, in linf, cut off at that distance."""
    wide = share.reshape(-1, *[1] * (x.dim() - 1))
    if norm != "linf":
        return x + wide * (far - x)
    most = wide * (far - x).flatten(1).abs().amax(dim=1).reshape(wide.shape)
    return torch.minimum(torch.maximum(far, x - most), x + most)


def to_boundary(
    model: nn.Module, x: Tensor, far: Tensor, goal: Tensor, sign: float, *, norm: str, rounds: int
) -> Tensor:
    """The point nearest to `x` on the way to `far` that still fools the model, by bisection; `far` does."""
    low, high = torch.zeros(len(x), device=x.device), torch.ones(len(x), device=x.device)
    best = far
    for _ in range(rounds):
        middle = (low + high) / 2
        point = between(norm, x, far, middle)
        hit = fools(model, point, goal, sign)
        low, high, best = torch.where(hit, low, middle), torch.where(hit, middle, high), pick(hit, point, best)
    return best


class Approach:
    """The nearest success of every image of a batch, of which those in `rows` are still searched."""

    def __init__(
        self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor, *, ball: Ball, tries: int
    ) -> None:
        start, found = starting_points(model, x, goal, sign, keys, tries=tries)
        self.x, self.ball = x, ball
        self.point = start
        self.distance = torch.where(found, ball.size(start - x), torch.inf)
        self.first_inside = torch.where(found & (self.distance == 0), 0, -1)
        self.rows = (found & (self.distance > 0)).nonzero()[:, 0]

    def offer(self, points: Tensor, inside: Tensor, taken: int) -> None:
        """Successes of the images in `rows`, after so many steps; `inside`: those in the ball of the threat."""
        distance, rows = self.ball.size(points - self.x[self.rows]), self.rows
        closer = distance < self.distance[rows]
        self.point.index_copy_(0, rows, pick(closer, points, self.point[rows]))
        self.distance.index_copy_(0, rows, torch.where(closer, distance, self.distance[rows]))
        first = self.first_inside[rows]
        self.first_inside.index_copy_(0, rows, torch.where(inside & (first < 0), taken, first))

    def nearest(self) -> Nearest:
        found = nothing_yet(self.x)._replace(
            x_adv=self.point, fooled=self.distance.isfinite(), broken_at=self.first_inside
        )
        return Nearest(found, self.distance)
