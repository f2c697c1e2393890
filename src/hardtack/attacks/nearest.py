"""What every search for the smallest perturbation shares: keeping the nearest success, and fitting it to a threat.

A minimum-norm attack implements `minimise` and takes the two functions at the end as its methods:

    search, distances = search_nearest, nearest_distances

`search` compares the nearest success with the threat, `distances` returns it at any distance. The target comes from the
caller or, where the attack has a field `target`, from targets.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.losses import Loss, margin
from hardtack.attacks.outcome import AttackOutcome, Step, nothing_yet, succeeds
from hardtack.attacks.preserve_state import Mode, preserve_state
from hardtack.attacks.targets import aim
from hardtack.base import randomness
from hardtack.threats import Threat


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

    def of(self, rows: Tensor) -> Nearest:
        """The entries of some images."""
        return Nearest(AttackOutcome(*(part[rows] for part in self.found)), self.distance[rows])

    def put(self, rows: Tensor, part: Nearest) -> Nearest:
        """The same for all images, with these entries for those in `rows`."""

        def merged(whole: Tensor, some: Tensor) -> Tensor:
            return whole.index_copy(0, rows, some.to(whole.dtype))

        found = AttackOutcome(*map(merged, self.found, part.found))
        return Nearest(found, merged(self.distance, part.distance))


def margin_gradient(
    model: nn.Module, image: Tensor, goal: Tensor, sign: float, *, climbed: Loss | None = None
) -> tuple[Tensor, Step]:
    """The gradient of the margin of the wrong class (0 where it is not a number), and the values at the image.

    With `climbed` it is the gradient of that loss; the value stays the margin.
    """

    def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits = model(image).float()
        value = sign * margin(logits, goal)
        total = value if climbed is None else sign * climbed(logits, goal, None)
        return total.sum(), (value.detach(), logits.detach())

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


class MinimumNormSearch(Protocol):
    """What the two functions below need of an attack."""

    threat: Threat
    seed: int
    mode: Mode
    steps: int | None
    target: str | None

    def minimise(self, model: nn.Module, x: Tensor, goal: Tensor, sign: float, keys: Tensor) -> Nearest:
        """The nearest success of each image. `sign` is +1 to leave the class `goal`, −1 to reach it; `keys` are
        the images' own random keys, with the seed in them. The caller has put the model into `preserve_state`."""
        ...


def search_nearest(
    self: Any,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    keys: Tensor | None = None,
    target: Tensor | None = None,
    verdict: bool = True,
) -> AttackOutcome:
    """The method `search` of a minimum-norm attack: the nearest success, fitted to the threat."""
    nearest, goal, sign = _search(self, model, x, y, keys, target)
    return fit_to_threat(
        nearest.found, self.threat, model, x, goal, sign, steps=self.steps or 0, verdict=verdict
    )  # fmt: skip


def nearest_distances(
    self: Any, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The nearest adversarial images, at any distance, and their distances in the norm that the attack minimises.

    The distance is inf where none was found, and 0 where the clean image is misclassified.
    """
    with preserve_state(model, mode=self.mode), guard_input(model):
        target = None if target is None else target.clone()
        nearest, _, _ = _search(self, model, x.detach().clone(), y.clone(), keys, target)
        return nearest.found.x_adv, nearest.distance


def _search(
    attack: MinimumNormSearch, model: nn.Module, x: Tensor, y: Tensor, keys: Tensor | None, target: Tensor | None
) -> tuple[Nearest, Tensor, float]:
    keys = torch.arange(len(x), device=x.device) if keys is None else keys
    goal, sign = aim(model, x, y, keys, attack.seed, target, attack.target)
    return attack.minimise(model, x, goal, sign, randomness.make_keys(keys, attack.seed)), goal, sign
