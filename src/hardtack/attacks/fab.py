"""FAB (Croce and Hein 2020): moves along the decision boundary towards its point that is nearest to the image.

    linearise at the iterate → project the iterate and the image onto the linearised boundary → a convex combination
    of both, with a little overshoot → where that fools the model, a step back towards the image

An iteration calls the model twice: for the linearisation (forward and backward), then for the label of the new point
(forward). One pass could serve both if points were not pulled back, but near a smooth boundary nearly all of them are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.contract import Attack
from hardtack.attacks.linearised import nearest_boundary, plain_logits
from hardtack.attacks.losses import target_loss
from hardtack.attacks.pool.search import Cost, NewItems, State, common_entries, observe, pick, success_margin
from hardtack.attacks.standalone import search_alone
from hardtack.base import randomness
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat
from hardtack.threats.planes import TO_PLANE

_TINY = 1e-12
_MOST_CLASSES, _CANDIDATES = 20, 10


@attacks.register("fab", help="FAB: the nearest point of the decision boundary, by linearising all classes", targets=0)
@attacks.register("fab_t", help="FAB towards the nine likeliest wrong classes in turn", targets=9)
@dataclass(frozen=True, kw_only=True)
class FAB(Attack):
    """Fast adaptive boundary attack: eps decides only what counts as a success (and the size of random starts).

    targets      how many of the likeliest wrong classes are aimed at one after the other; 0: towards the nearest
                 boundary
    alpha_max    largest weight of the projection of the image against that of the iterate
    overshoot    factor that extends both projections beyond the boundary
    beta         where a misclassified point is pulled back to: 0 is the image, 1 the point itself
    candidates   of targets=0: likeliest wrong classes that are linearised, each with a backward pass; null: all of
                 them, or 10 where there are more than 20 classes
    fused        linearise at the point whose label is computed, before it is pulled back: one pass for each step
                 instead of two

    `fused` is not in the paper; its perturbations are no larger. The first restart starts at the image, later ones at
    noise of half the ball's size. The state's `size` is that of the smallest perturbation that fooled the model, inside
    the ball or not; inf where there was none.

    Paper: Croce and Hein 2020, Minimally Distorted Adversarial Examples with a Fast Adaptive Boundary Attack
        (arXiv:1907.02044)
    """

    threat: Threat
    steps: int = 100
    targets: int = 0
    restarts: int = 1
    alpha_max: float = 0.1
    overshoot: float = 1.05
    beta: float = 0.9
    candidates: int | None = None
    fused: bool = False
    reach: bool = False
    seed: int = 0

    smallest_in: ClassVar[tuple[str, ...]] = ("linf", "l2", "l1")

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.restarts < 1 or self.targets < 0:
            raise UserError("steps and restarts must be at least 1, targets at least 0")
        if self.candidates is not None and self.candidates < 1:
            raise UserError(f"candidates must be at least 1, found {self.candidates}")
        if not 0 <= self.alpha_max <= 1 or not 0 <= self.beta <= 1:
            raise UserError(f"alpha_max and beta must lie in [0,1], found {self.alpha_max} and {self.beta}")
        if not self.overshoot >= 1:
            raise UserError(f"overshoot must be at least 1, found {self.overshoot}")

    search = search_alone

    @property
    def name(self) -> str:
        return "fab_t" if self.targets else attacks.name_of(self) or "fab"

    # ------------------------------------------------------------ what the pool needs

    @property
    def pooled(self) -> bool:
        return True

    def length(self, steps: int) -> int:
        """One call per iteration; with `fused` one more, for the label of the last point."""
        return steps + self.fused

    def cost(self, classes: int) -> Cost:
        return Cost(1 if self.fused else 2, 1 if self._aims else self._count(classes))

    def begin(self, items: NewItems) -> State:
        noise = self._noise(items.x, items.keys)
        start = pick(items.restart > 0, (items.x + noise).clamp(0, 1), items.x)
        never = torch.full((len(items.x),), torch.inf, dtype=items.x.dtype, device=items.x.device)
        return common_entries(items) | {"point": pick(items.warm, items.start, start), "size": never}

    def advance(self, model: nn.Module, state: State) -> State:
        x, point = state["x"], state["point"]
        logits, rise, normal = self._linearise(model, state)
        observed = {"loss": rise, "gradient": normal}
        rise, normal = rise.nan_to_num(0.0, 0.0, 0.0), normal.nan_to_num(0.0, 0.0, 0.0)
        if self.fused:
            entries, back = self._evaluate(state, point, logits, observed)
            rise = rise + (normal * (back - point)).flatten(1).sum(dim=1)
            return entries | {"point": self._move(back, x, rise, normal), "done": state["t"] >= state["steps"]}
        moved = self._move(point, x, rise, normal)
        with torch.no_grad():
            logits = plain_logits(model, moved)
        entries, back = self._evaluate(state, moved, logits, observed)
        return entries | {"point": back, "done": state["t"] + 1 >= state["steps"]}

    # ------------------------------------------------------------ the parts of a step

    def _evaluate(
        self, state: State, point: Tensor, logits: Tensor, observed: dict[str, Tensor]
    ) -> tuple[State, Tensor]:
        """The common entries after a pass over `point`, and the point, pulled back where it fools the model."""
        x, size = state["x"], self.threat.size(point - state["x"])
        entries = observe(state, point, logits, reach=self.reach, counts=size <= self.threat.radius, **observed)
        fools = success_margin(logits, state["y"], state["target"], reach=self.reach) > 0
        entries["size"] = torch.where(fools, torch.minimum(size, state["size"]), state["size"])
        return entries, pick(fools, x + self.beta * (point - x), point)

    @property
    def _aims(self) -> bool:
        return self.reach or self.targets > 0

    def _count(self, classes: int) -> int:
        """How many wrong classes an untargeted step linearises."""
        several = self.candidates or (classes if classes <= _MOST_CLASSES else _CANDIDATES)
        return min(several, classes - 1)

    def _linearise(self, model: nn.Module, state: State) -> tuple[Tensor, Tensor, Tensor]:
        return self._aimed(model, state) if self._aims else self._nearest(model, state)

    def _aimed(self, model: nn.Module, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, the target's logit minus the label's (`reach`: minus the largest other), and the gradient of that."""
        y, target, ahead = state["y"], state["target"].clamp(min=0), target_loss("margin")

        def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            logits = plain_logits(model, image)
            value = success_margin(logits, y, target, reach=True) if self.reach else ahead(logits, y, target)
            return value.sum(), (value.detach(), logits.detach())

        normal, (rise, logits) = input_gradient(objective, state["point"])
        return logits, rise, normal

    def _nearest(self, model: nn.Module, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """The same for the wrong class whose linearised boundary is nearest."""
        return nearest_boundary(model, state["point"], state["y"], norm=self.threat.norm, count=self._count)

    def _move(self, point: Tensor, x: Tensor, rise: Tensor, normal: Tensor) -> Tensor:
        """From a point and from the image to the plane on which `rise`, linearised at the point, vanishes."""
        back = (normal * (point - x)).flatten(1).sum(dim=1)
        ways = TO_PLANE[self.threat.norm](
            torch.cat([point, x]), torch.cat([normal, normal]), torch.cat([-rise, back - rise])
        )
        from_point, from_image = ways.chunk(2)
        near, far = self.threat.size(ways).clamp_min(1e-8).chunk(2)
        share = (near / (near + far)).clamp(max=self.alpha_max).reshape(-1, *[1] * (x.dim() - 1))
        way = self.overshoot * ((1 - share) * from_point + share * from_image)
        return (point + share * (x - point) + way).clamp(0, 1)

    def _noise(self, x: Tensor, keys: Tensor) -> Tensor:
        """Half as large as the ball."""
        shape = tuple(x.shape[1:])
        linf = self.threat.norm == "linf"
        noise = randomness.uniform(keys, shape) * 2 - 1 if linf else randomness.normal(keys, shape)
        length = self.threat.size(noise).clamp_min(_TINY).reshape(-1, *[1] * (x.dim() - 1))
        return 0.5 * self.threat.radius * noise / length
