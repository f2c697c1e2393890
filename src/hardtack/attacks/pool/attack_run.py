"""A list of attacks against a list of images: each stage meets those that still stand.

Searches go through the pool; any other attack (`attack(model, x, y) -> x_adv`) is called on batches. Whatever an
attack says of itself, an image has fallen when the verifier says so. The state of an attack run can be written at any
moment and restored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.autoattack import Stage
from hardtack.attacks.outcome import Outcome, nothing_yet
from hardtack.attacks.pool.attempts import Attempts, Images
from hardtack.attacks.pool.pool import Pool, Progress
from hardtack.attacks.pool.search import success_margin
from hardtack.attacks.pool.verifier import Verifier
from hardtack.attacks.preserve_state import call
from hardtack.base.errors import UserError

_KEPT = (
    "standing", "broken_by", "target", "step", "prediction", "forwards", "backwards", "x_adv", "zero_gradient", "flat",
    "unverified", "not_finite", "attacked", "silent", "left", "climbed",
)  # fmt: skip


@dataclass(frozen=True)
class News:
    """Where a attack_run stands, for whoever shows or keeps it."""

    stage: int
    name: str
    standing: int
    share: float  # of the work of all stages that is done, as far as can be told


class AttackRun:
    """What became of each image; `run` goes on until every stage has been made."""

    def __init__(self, images: Images, stages: list[Stage], *, standing: Tensor, prediction: Tensor) -> None:
        self.images, self.stages, self.stage = images, stages, 0
        none, no = torch.full_like(images.y, -1), torch.zeros_like(standing)
        self.standing, self.prediction = standing.clone(), prediction.clone()
        self.broken_by, self.target, self.step = none, none.clone(), none.clone()
        self.forwards, self.backwards = none * 0, none * 0
        self.x_adv = images.x.clone()
        self.zero_gradient, self.unverified, self.not_finite, self.attacked = no, no.clone(), no.clone(), no.clone()
        self.flat, self.climbed, self.silent = no.clone(), no.clone(), no.clone()
        self.left = torch.ones_like(images.clean[:, 0])  # share of the clean margin at the closest point found
        self.attempts: dict[str, Any] | None = None  # of the stage under way, as arrays
        self.seconds: dict[str, float] = {}  # that each stage took

    def run(self, model: nn.Module, pool: Pool, verifier: Verifier, tell: Callable[[News], None] | None = None) -> None:
        """Make the stages that are left. `model` is the real one; the pool brings its own."""
        finer: Pool | None = None
        for number in range(self.stage, len(self.stages)):
            self.stage, stage = number, self.stages[number]
            rows, began = self._rows(stage), time.monotonic()
            if stage.fine and pool.coarse == "fp32":  # all was searched in fp32 already
                rows = rows[:0]
            if len(rows) and stage.attack.threat.eps > 0:
                if hasattr(stage.attack, "begin"):
                    if stage.fine and finer is None:
                        finer = pool.finer(model, self.images.x[:8])
                    self._pooled(stage, rows, finer if finer and stage.fine else pool, verifier, tell)
                else:
                    self._batches(stage, rows, model, pool, verifier)
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + time.monotonic() - began
            self.stage, self.attempts = number + 1, None
            if tell is not None:
                tell(self._news(0.0))

    def _rows(self, stage: Stage) -> Tensor:
        standing = self.standing
        if stage.suspects:
            standing = standing & (self.zero_gradient | self.not_finite | self.flat)
        if stage.near is not None:
            standing = standing & (self.left <= stage.near)
        return standing.nonzero()[:, 0]

    def _pooled(
        self, stage: Stage, rows: Tensor, pool: Pool, verifier: Verifier, tell: Callable[[News], None] | None
    ) -> None:
        images, attack = self.images.of(rows), stage.attack
        classes = images.clean.shape[1]
        rounds = stage.tries(classes)
        attempts = Attempts(images, sum(len(part.tries) for part in rounds))
        if self.attempts is not None:
            attempts.restore(self.attempts)

        def told(progress: Progress, attempts: Attempts) -> None:
            self._watched = attempts
            if tell is not None:
                done = 1 - progress.left / max(progress.left + progress.spent, 1)
                tell(self._news(done, int((~attempts.fallen).sum())))

        pool.run(attack, images, rounds, attempts=attempts, salt=self.stage, tell=told)
        self._watched = None
        cost = attack.cost(classes)
        passes = torch.as_tensor(attempts.passes(), device=rows.device)
        fallen = torch.as_tensor(attempts.fallen, device=rows.device)
        self._enter(
            rows, fallen, attempts.x_adv, verifier, stage, spent=(passes * cost.forwards, passes * cost.backwards),
            target=torch.as_tensor(attempts.target, device=rows.device).long(),
            step=torch.as_tensor(attempts.step, device=rows.device).long(),
        )  # fmt: skip
        self.zero_gradient[rows] |= attempts.zero_gradient
        self.not_finite[rows] |= attempts.not_finite
        self.unverified[rows] |= attempts.unverified & ~fallen
        clean = -success_margin(images.clean, images.y, images.y, reach=False)
        self.left[rows] = torch.minimum(self.left[rows], (-attempts.margin / clean).nan_to_num(1.0, 1.0, 1.0))
        if cost.backwards:  # a search without gradients says nothing of them
            self._note_climb(rows, attempts.top_loss > attempts.first_loss)

    def _note_climb(self, rows: Tensor, rose: Tensor) -> None:
        """An image's loss is flat when no search by gradients has raised it."""
        self.flat[rows] = ~rose & (self.flat[rows] | ~self.climbed[rows])
        self.climbed[rows] = True

    _watched: Attempts | None = None

    def _batches(self, stage: Stage, rows: Tensor, model: nn.Module, pool: Pool, verifier: Verifier) -> None:
        while len(rows):
            part = rows[: max(1, pool.batch_size)]
            images = self.images.of(part)
            try:
                seen = _Seen(images, stage.attack.threat)
                with counted(model, seen) as spent, pool.runtime.arithmetic(pool.precision):
                    found = _search(stage.attack, model, images)
            except torch.OutOfMemoryError:
                pool.halve()
                continue
            rows = rows[len(part) :]
            verdict = verifier(found.x_adv, images.x, images.y, stage.attack, images.target)
            self._enter(
                part, verdict.wrong, found.x_adv, verifier, stage, predicted=verdict.predicted,
                spent=(torch.full_like(part, spent[0] // len(part)), torch.full_like(part, spent[1] // len(part))),
                target=torch.full_like(part, -1), step=found.broken_at,
            )  # fmt: skip
            self.zero_gradient[part] |= found.zero_gradient
            self.not_finite[part] |= found.not_finite | ~verdict.finite
            self.unverified[part] |= found.fooled & ~verdict.wrong
            self.silent[part] |= seen.wrong & ~verdict.wrong
            if found.first_loss.isfinite().any():  # an attack that says nothing of its loss is not blamed for it
                self._note_climb(part, found.best_loss > found.first_loss)

    def _enter(
        self,
        rows: Tensor,
        fallen: Tensor,
        x_adv: Tensor,
        verifier: Verifier,
        stage: Stage,
        *,
        spent: tuple[Tensor, Tensor],
        target: Tensor,
        step: Tensor,
        predicted: Tensor | None = None,
    ) -> None:
        self.attacked[rows] = True
        self.forwards[rows] += spent[0]
        self.backwards[rows] += spent[1]
        self.x_adv[rows] = x_adv
        self.prediction[rows] = verifier.logits(x_adv).argmax(dim=1) if predicted is None else predicted
        down = rows[fallen]
        self.standing[down] = False
        self.broken_by[down], self.target[down], self.step[down] = self.stage, target[fallen], step[fallen]

    def _news(self, done: float, standing: int | None = None) -> News:
        number = min(self.stage, len(self.stages) - 1)
        alive = int(self.standing.sum()) if standing is None else standing
        weights = [_weight(stage, self.images.clean.shape[1]) for stage in self.stages]
        made = sum(weights[: self.stage]) + (done * weights[number] if self.stage == number else 0.0)
        return News(number, self.stages[number].name, alive, made / max(sum(weights), 1.0))

    # ------------------------------------------------------------ on paper

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, the tries that are over of the stage under way included."""
        kept = {name: getattr(self, name).cpu().numpy() for name in _KEPT}
        attempts = self._watched.arrays() if self._watched is not None else {}
        return {
            "stage": np.array(self.stage),
            **kept,
            **{f"attempts.{name}": value for name, value in attempts.items()},
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.stage = int(arrays["stage"])
        for name in _KEPT:
            setattr(self, name, torch.from_numpy(arrays[name]).to(self.images.x.device))
        attempts = {
            name.removeprefix("attempts."): value for name, value in arrays.items() if name.startswith("attempts.")
        }
        self.attempts = attempts or None


def _search(attack: Any, model: nn.Module, images: Images) -> Outcome:
    """What an attack found. One of the user's own is a function of (model, x, y) and says nothing but its images."""
    if hasattr(attack, "search"):
        given = {} if images.target is None else {"target": images.target}
        return attack.search(model, images.x, images.y, keys=images.keys, verdict=True, **given)
    x_adv = call(attack, model, images.x, images.y, keys=images.keys)
    if not isinstance(x_adv, Tensor) or x_adv.shape != images.x.shape or x_adv.dtype != images.x.dtype:
        found = f"{x_adv.dtype} {tuple(x_adv.shape)}" if isinstance(x_adv, Tensor) else type(x_adv).__name__
        wanted = f"{images.x.dtype} {tuple(images.x.shape)}"
        raise UserError(f"{type(attack).__name__} must return images as it was given them, {wanted}, found {found}")
    return nothing_yet(images.x)._replace(x_adv=x_adv.detach())


def _weight(stage: Stage, classes: int) -> float:
    """Work on an image that survives the stage, in forward passes; a backward pass counts as two."""
    attack = stage.attack
    if stage.suspects or stage.near is not None:
        return 0.0
    if not hasattr(attack, "begin"):
        return 3.0 * getattr(attack, "steps", 1) * getattr(attack, "restarts", 1)
    passes = sum(attack.length(one.steps) for part in stage.tries(classes) for one in part.tries)
    cost = attack.cost(classes)
    return float(passes * (cost.forwards + 2 * cost.backwards))


class _Seen:
    """Which images a model was shown in a form that fools it, while an attack was at work."""

    def __init__(self, images: Images, threat: Any) -> None:
        self.images, self.threat = images, threat
        self.wrong = torch.zeros_like(images.y, dtype=torch.bool)

    @torch.no_grad()
    def __call__(self, x: Tensor, logits: Tensor) -> None:
        if x.shape != self.images.x.shape or logits.ndim != 2:  # the attack has an order of its own
            return
        goal, predicted = self.images.target, logits.argmax(dim=1)
        there = predicted != self.images.y if goal is None else predicted == goal
        self.wrong |= there & logits.isfinite().all(dim=1) & self.threat.contains(x, self.images.x)


@contextlib.contextmanager
def counted(model: nn.Module, seen: Callable[[Tensor, Tensor], None] | None = None) -> Iterator[list[int]]:
    """Images that go through the model inside the block: [forwards, of those with a gradient to come]."""
    passes = [0, 0]

    def count(module: nn.Module, given: Any, out: Any) -> None:
        if given and isinstance(given[0], Tensor):
            passes[0] += len(given[0])
            passes[1] += len(given[0]) if given[0].requires_grad else 0
            if seen is not None and isinstance(out, Tensor):
                seen(given[0].detach(), out.detach().float())

    handle = model.register_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()
