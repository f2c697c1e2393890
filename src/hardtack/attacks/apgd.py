"""APGD (Croce and Hein 2020), linf and l2, and its l1 form ("Mind the box", 2021): ascent that needs no tuning.

The step size starts at twice eps (l1: eps), with momentum. There are checkpoints at decreasing distances. At each of
them, images whose loss rose in too few steps, or whose best loss has not changed, halve their step size and return to
their best point. In l1 a step changes as many pixels as the sparsity of the best point suggests.

`official=True` repeats the published implementation where it departs from its paper: the first comparison of losses is
with zero, and l2 points are scaled to the ball, then clipped. Every row counts its own passes, so everything that
depends on time is looked up in tables.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.contract import Attack
from hardtack.attacks.losses import LossName, get_loss, is_code, target_loss
from hardtack.attacks.pool.search import NewItems, State, averaged, common_entries, observe, pick
from hardtack.attacks.standalone import search_alone
from hardtack.base import randomness
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_TINY = 1e-12


_NUMBERS = (
    "radius",  # of the ball, in multiples of eps
    "next_radius",  # of the pass that follows
    "gap",  # passes since the last checkpoint where one is due, else 0
    "cosine",  # 1 → 0 over a phase
)
_MARKS = (
    "opens",  # the first pass of a phase
    "closes",  # the last pass of a phase
    "final",  # in the last phase: the points lie in the threat's ball
    "second",  # the pass after one that opens a phase
    "due",  # a checkpoint
    "last",  # the last pass, or any after it
)


class Timetable(NamedTuple):
    """What happens at each pass (plan × pass × entry). A plan is the number of steps that an item may take.

    All entries of a pass lie side by side, so that two lookups find them.
    """

    numbers: Tensor
    marks: Tensor


def _checkpoints(steps: int, norm: str) -> list[int]:
    """For each step: the distance to the previous checkpoint where it is one, else 0."""
    gaps, taken = [0] * (steps + 1), 0
    if norm == "l1":
        gap = shortest = max(int(0.04 * steps), 1)
        shrink = 0
    else:
        gap, shrink, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    while taken + gap <= steps:
        taken += gap
        gaps[taken] = gap
        gap = max(gap - shrink, shortest)
    return gaps


@functools.lru_cache(maxsize=64)
def _timetable(plans: tuple[int, ...], norm: str, widened: bool, device: torch.device) -> Timetable:
    rows = []
    for steps in plans:
        third = math.ceil(0.3 * steps)
        phases = [(3.0, third), (2.0, third), (1.0, steps - 2 * third)] if widened else [(1.0, steps)]
        row = []
        for number, (radius, length) in enumerate(phases):
            gaps = _checkpoints(length, norm)
            for taken in range(length + 1):
                cosine = 0.5 * (1 + math.cos(math.pi * taken / length))
                row.append((radius, taken == 0, taken == length, gaps[taken], number == len(phases) - 1, cosine))
        rows.append(row)
    after = (1.0, False, False, 0, True, 0.0)
    numbers, marks = [], []
    for row in rows:
        row, last = row + [after] * (max(map(len, rows)) + 1 - len(row)), len(row) - 1
        pairs = list(enumerate(itertools.pairwise(row)))
        numbers.append([(this[0], following[0], this[3], this[5]) for _, (this, following) in pairs])
        marks.append(
            [(this[1], this[2], this[4], t > 0 and row[t - 1][1], this[3] > 0, t >= last) for t, (this, _) in pairs]
        )
    return Timetable(
        torch.tensor(numbers, dtype=torch.float32, device=device), torch.tensor(marks, dtype=torch.bool, device=device)
    )


@attacks.register("apgd", help="APGD on the logit margin: adaptive steps, no tuning", loss="margin")
@attacks.register("apgd_t", help="APGD towards the nine likeliest wrong classes in turn", loss="dlr", targets=9)
@attacks.register("apgd_dlr", help="APGD on the difference of logits ratio", loss="dlr")
@attacks.register("apgd_ce", help="APGD on cross-entropy", loss="ce")
@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    """Auto-PGD.

    rho             share of steps between two checkpoints in which the loss must rise, or the step size is halved
    momentum        weight of the new step against the one before it
    relative_step   first step size in multiples of eps, in linf and l2; null: 2
    schedule        halving: the step size is halved at checkpoints; cosine: it falls along a cosine
    widened         search in 3 eps, 2 eps and eps in turn (the l1 form of AutoAttack)
    official        repeat the published implementation where it departs from its paper
    plans           numbers of steps that attempts may have, where they differ

    Paper: Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
        Parameter-free Attacks (arXiv:2003.01690)
    Paper: Croce and Hein 2021, Mind the Box: l1-APGD for Sparse Adversarial Attacks on Image Classifiers
        (arXiv:2103.01208)
    """

    threat: Threat
    steps: int = 100
    loss: LossName = "ce"
    targets: int = 0
    restarts: int = 1
    rho: float = 0.75
    momentum: float = 0.75
    relative_step: float | None = None
    schedule: Literal["halving", "cosine"] = "halving"
    widened: bool = False
    eot: int = 1
    official: bool = False
    plans: tuple[int, ...] = ()
    reach: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.restarts < 1 or self.eot < 1 or self.targets < 0:
            raise UserError("steps, restarts and eot must be at least 1, targets at least 0")
        if not 0 <= self.rho <= 1 or not 0 < self.momentum <= 1:
            raise UserError(f"rho must lie in [0,1] and momentum in (0,1], found {self.rho} and {self.momentum}")
        if self.plans and self.steps not in self.plans:
            raise UserError(f"plans are numbers of steps, {self.steps} among them, found {list(self.plans)}")
        if self.loss == "kl":
            raise UserError("APGD climbs ce, margin, dlr, pm or a loss of your own; kl is for pgd")
        if self.widened and self.steps < 5:
            raise UserError("widened needs at least 5 steps")

    search = search_alone

    @property
    def name(self) -> str:
        """The registered name; forms that are not registered are named after their loss: apgd_pm."""
        own = "own" if is_code(self.loss) else self.loss
        return "apgd_t" if self.targets else attacks.name_of(self) or f"apgd_{own}"

    # ------------------------------------------------------------ what the pool needs

    @property
    def pooled(self) -> bool:
        return True

    def length(self, steps: int) -> int:
        """Passes of an item: one per step and one for the start of every phase."""
        return steps + (3 if self.widened else 1)

    def begin(self, items: NewItems) -> State:
        radius = self.threat.radius * (3 if self.widened else 1)
        point = pick(items.warm, items.start, self._start(items.x, radius, items.keys)).clamp(0, 1)
        n, zeros = len(point), torch.zeros(len(point), dtype=point.dtype, device=point.device)
        state = common_entries(items) | {
            "point": point, "previous": point, "best": point, "best_gradient": torch.zeros_like(point),
            "loss": zeros, "best_loss": zeros, "checked_loss": zeros, "rises": zeros,
            "reduced": torch.ones(n, dtype=torch.bool, device=point.device), "length": zeros,
        }  # fmt: skip
        if self.threat.norm == "l1":
            state |= {"moved": zeros, "dense": zeros, "warm": items.warm | self.widened}
        return state

    def advance(self, model: nn.Module, state: State) -> State:
        at = self._now(state)
        gradient, loss, logits = self._evaluate(model, state)
        entries = observe(
            state, state["point"], logits, reach=self.reach, counts=at["final"], loss=loss, gradient=gradient
        )
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        entries["done"] = at["last"]

        opens = at["opens"]
        higher = opens | (loss > state["best_loss"])
        best = pick(higher, state["point"], state["best"])
        best_gradient = pick(higher, gradient, state["best_gradient"])
        best_loss = torch.where(higher, loss, state["best_loss"])
        before = torch.where(at["second"], 0.0, state["loss"]) if self.official else state["loss"]
        rises = torch.where(opens, 0.0, state["rises"] + (loss > before))
        state = state | {"best": best, "best_loss": best_loss, "rises": rises}

        back, changes = self._checkpoint(state, at, loss)
        point = pick(back, best, state["point"])
        gradient = pick(back, best_gradient, gradient)
        moved = self._move(point, state["previous"], gradient, state["x"], changes, at)
        # a phase begins at the best point of the one before, inside the smaller ball
        opening = self._project(best, state["x"], self.threat.radius * at["next_radius"])
        closes = at["closes"]
        return entries | changes | {
            "point": pick(closes, opening, moved), "previous": pick(closes, opening, point), "best": best,
            "best_gradient": best_gradient, "best_loss": best_loss, "loss": loss,
        }  # fmt: skip

    # ------------------------------------------------------------ the parts of a step

    def _now(self, state: State) -> dict[str, Tensor]:
        plans = tuple(sorted(set(self.plans or (self.steps,))))
        table = _timetable(plans, self.threat.norm, self.widened, state["x"].device)
        steps, t = state["steps"], state["t"].clamp(max=table.numbers.shape[1] - 1)
        plan = sum((steps > shorter).long() for shorter in plans[:-1]) if len(plans) > 1 else torch.zeros_like(steps)
        numbers, marks = table.numbers[plan, t].to(state["x"].dtype), table.marks[plan, t]
        return dict(zip(_NUMBERS, numbers.unbind(1), strict=True)) | dict(zip(_MARKS, marks.unbind(1), strict=True))

    def _evaluate(self, model: nn.Module, state: State) -> tuple[Tensor, ...]:
        y, target = state["y"], state["target"]
        away, towards = get_loss(self.loss), target_loss(self.loss)

        def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            logits = model(image)
            logits = logits if logits.dtype == torch.float64 else logits.float()
            aimed = towards(logits, y, target.clamp(min=0))
            value = torch.where(target < 0, away(logits, y, None), aimed)
            return value.sum(), (value.detach(), logits.detach())

        def once() -> tuple[Tensor, ...]:
            gradient, (value, logits) = input_gradient(objective, state["point"])
            return gradient, value, logits

        return averaged(self.eot, once)

    def _checkpoint(self, state: State, at: dict[str, Tensor], loss: Tensor) -> tuple[Tensor, State]:
        """Which rows return to their best point, and the step sizes (l1: and densities) from here on."""
        opens, due = at["opens"], at["due"]
        eps = self.threat.radius * at["radius"]
        if self.threat.norm == "l1":
            return self._sparsity_checkpoint(state, opens, due, eps)
        first = eps * (2.0 if self.relative_step is None else self.relative_step)
        if self.schedule == "cosine":
            never = torch.zeros_like(due)
            return never, {"rises": state["rises"], "length": first * at["cosine"]}
        rose_rarely = state["rises"] <= self.rho * at["gap"]
        unchanged = ~state["reduced"] & (state["checked_loss"] >= state["best_loss"])
        halve = due & (rose_rarely | unchanged)
        length = torch.where(opens, first, state["length"])
        return halve, {
            "length": torch.where(halve, length / 2, length),
            "reduced": torch.where(opens, True, torch.where(due, halve, state["reduced"])),
            "checked_loss": torch.where(opens, loss, torch.where(due, state["best_loss"], state["checked_loss"])),
            "rises": torch.where(due, 0.0, state["rises"]),
        }

    def _sparsity_checkpoint(self, state: State, opens: Tensor, due: Tensor, eps: Tensor) -> tuple[Tensor, State]:
        pixels, warm = state["x"][0].numel(), state["warm"]
        moved = _moved(state["best"], state["x"])  # where a phase opens, the best point is its first
        density = moved / pixels / 1.5
        sparser = due & (moved / state["moved"].clamp(min=1) < 0.95)
        slower = torch.where(sparser, eps, state["length"] / 1.5)
        slower = torch.minimum(torch.maximum(slower, eps / 10), eps)
        first = torch.where(warm, moved, float(pixels))
        return sparser, {
            "length": torch.where(opens, eps, torch.where(due, slower, state["length"])),
            "dense": torch.where(opens, torch.where(warm, density, 0.2), torch.where(due, density, state["dense"])),
            "moved": torch.where(opens, first, torch.where(due, moved, state["moved"])),
            "rises": state["rises"],
        }

    def _move(
        self, point: Tensor, previous: Tensor, gradient: Tensor, x: Tensor, now: State, at: dict[str, Tensor]
    ) -> Tensor:
        eps, ball = self.threat.radius * at["radius"], self.threat.ball
        if self.threat.norm == "l1":
            if not self.official:  # pixels that cannot move because of the box would waste their share of the step
                blocked = ((gradient > 0) & (point >= 1)) | ((gradient < 0) & (point <= 0))
                gradient = gradient.masked_fill(blocked, 0)
            return self._project(point + _sparse_step(gradient, now["dense"], now["length"]), x, eps)
        z = self._project(point + ball.steepest_step(gradient, point, now["length"]), x, eps)
        share = torch.where(at["opens"], 1.0, self.momentum).reshape(-1, *[1] * (x.dim() - 1))
        return self._project(point + share * (z - point) + (1 - share) * (point - previous), x, eps)

    def _project(self, z: Tensor, x: Tensor, eps: Tensor) -> Tensor:
        if self.threat.norm == "l2" and self.official:
            delta = z - x
            length = delta.flatten(1).norm(dim=1)
            return (x + delta * (torch.minimum(length, eps) / (length + _TINY)).reshape(-1, 1, 1, 1)).clamp(0, 1)
        return self.threat.project(z, x, eps)

    def _start(self, x: Tensor, eps: float, keys: Tensor) -> Tensor:
        """On the sphere, not in the ball: linf noise stretched until one pixel moves by eps, l2 a direction."""
        shape = tuple(x.shape[1:])
        if self.threat.norm == "linf":
            noise = randomness.uniform(keys, shape) * 2 - 1
            return x + eps * noise / noise.flatten(1).abs().amax(dim=1).clamp_min(_TINY).reshape(-1, 1, 1, 1)
        noise = randomness.normal(keys, shape)
        if self.threat.norm == "l1":
            return self.threat.project(x + noise, x, eps)
        return x + eps * noise / noise.flatten(1).norm(dim=1).clamp_min(_TINY).reshape(-1, 1, 1, 1)


def _moved(point: Tensor, x: Tensor) -> Tensor:
    """How many pixels differ."""
    return (point != x).flatten(1).sum(dim=1).to(x.dtype)


def _sparse_step(gradient: Tensor, dense: Tensor, length: Tensor) -> Tensor:
    """Equal moves, `length` together, of the share `dense` of all pixels with the largest gradient."""
    rows = gradient.flatten(1).abs()
    pixels = rows.shape[1]
    cut = ((1 - dense) * pixels).clamp(0, pixels - 1).long()
    threshold = rows.sort(dim=1).values.gather(1, cut[:, None])
    sign = gradient.sign().flatten(1) * (rows >= threshold)
    step = sign * (length[:, None] / (sign.abs().sum(dim=1, keepdim=True) + 1e-10))
    return step.reshape(gradient.shape)
