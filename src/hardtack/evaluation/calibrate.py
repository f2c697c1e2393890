"""A few seconds of the real thing: how fast the model is, how much memory it takes, how many images stand.

What is tried out is what an evaluation would run: the same double of the model, the same precision, the same batch,
and a step of each search. Slow models are tried on fewer images and smaller batches.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import AttackRun
from hardtack.attacks.pool.attempts import Attempts, Images, ranking
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost, Work, success_margin
from hardtack.attacks.pool.slots import Slots
from hardtack.base import randomness
from hardtack.base.cost import Memory, device_name, timed
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import count, head
from hardtack.evaluation.measure import Measure
from hardtack.evaluation.sanity import check_inputs, check_logits
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.trials import Trial

BUDGET_S = 5.0
CLEAN_IMAGES, ATTACKED_IMAGES, STEPS = 256, 64, 10


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was tried out. Lists have an entry for each trial; shares are of the images that the model gets right."""

    device: str
    precision: str
    batch_size: int
    every: int  # passes between two looks of a pool
    shape: tuple[int, ...]
    classes: int
    clean: float  # accuracy
    clean_images: int
    attacked: int  # images of the short attack
    forward_s: float  # per image
    gradient_s: float  # forward and gradient, per image
    memory_mb: float
    survivors: tuple[float, ...] = ()  # of a short form of the first stage
    early: tuple[tuple[float, float], ...] = ()  # forwards and backwards of an image that fell to it
    rounds: tuple[tuple[float, ...], ...] = ()  # which share of the survivors enters each round of the first stage
    suspects: tuple[float, ...] = ()  # which share of the survivors goes to stages for suspects
    steps_s: tuple[tuple[float | None, ...], ...] = ()  # of each stage's search, one forward of one image

    def pass_s(self, trial: int, stage: int, cost: Cost) -> float:
        """Seconds of one forward of a stage, its share of the gradients included."""
        known = self.steps_s[trial][stage]
        if known is not None or not cost.forwards:
            return known or 0.0
        with_gradient = min(cost.backwards / cost.forwards, 1.0)
        return (1 - with_gradient) * self.forward_s + with_gradient * self.gradient_s


def calibrate(
    model: nn.Module, data: Dataset | Any, trials: list[Trial], config: EvaluationConfig, runtime: Runtime
) -> Calibration:
    """Try out an evaluation; the model is left as it was."""
    device, home = runtime.torch_device, next(iter(model.parameters()), torch.empty(0)).device
    model.to(device)
    try:
        with preserve_state(model):
            return _calibrate(model, data, trials, config, runtime)
    finally:
        model.to(home)


def _calibrate(
    model: nn.Module, data: Any, trials: list[Trial], config: EvaluationConfig, runtime: Runtime
) -> Calibration:
    end = time.monotonic() + BUDGET_S
    x, y = _sample(data, 8, runtime)
    check_inputs(x, y, num_classes=getattr(model, "num_classes", None))
    measure = Measure(model, trials, config, runtime, like=x)
    measure.verifier.logits(x[:1])  # whatever the first call sets up
    few_s = timed(lambda: measure.verifier.logits(x), 1) / len(x)
    x, y = _sample(data, _affordable(0.2 * BUDGET_S, few_s, CLEAN_IMAGES), runtime)
    x = x.clamp(0, 1)
    clean = measure.verifier.logits(x)
    check_logits(clean, y, votes=measure.verifier.votes)
    images = Images(x, y, torch.arange(len(x), device=x.device), clean)
    right = (clean.argmax(dim=1) == y).nonzero()[:, 0]
    pool = measure.pool(images)
    width = min(measure.batch_size, max(count(data), 1) * (9 if measure.pooled else 1))
    memory = Memory(runtime.torch_device)
    forward_s, gradient_s, width = _rates(pool, images, width)
    standing = images.of(right[: _affordable(0.2 * BUDGET_S, (STEPS + 1) * gradient_s, ATTACKED_IMAGES)])
    found: list[_Found] = []
    for trial in trials:
        if found and time.monotonic() > end:  # no time left: as the one before
            found.append(found[-1])
        else:
            found.append(_siege(model, trial.stages[0], standing, pool, measure))
    steps_s = [[_step_s(stage, images, pool, width, end) for stage in trial.stages] for trial in trials]
    return Calibration(
        device=device_name(runtime), precision=measure.precision, batch_size=measure.batch_size, every=pool.every,
        shape=measure.shape, classes=clean.shape[1], clean=len(right) / len(x), clean_images=len(x),
        attacked=len(standing.x) if trials else 0, forward_s=forward_s, gradient_s=gradient_s,
        memory_mb=memory.peak_mb(measure.batch_size / width), survivors=tuple(one[0] for one in found),
        early=tuple(one[1] for one in found), rounds=tuple(one[2] for one in found),
        suspects=tuple(one[3] for one in found), steps_s=tuple(map(tuple, steps_s)),
    )  # fmt: skip


def _sample(data: Any, most: int, runtime: Runtime) -> tuple[Tensor, Tensor]:
    most = min(most, count(data))
    return head(data if isinstance(data, tuple) else data.first(most), runtime.torch_device, first=most)


def _affordable(seconds: float, each_s: float, most: int) -> int:
    return max(4, min(most, int(seconds / max(each_s, 1e-9))))


# ---------------------------------------------------------------- how fast


def _rates(pool: Pool, images: Images, width: int) -> tuple[float, float, int]:
    """Seconds of a forward and of a forward with gradient, per image, and the batch that could be afforded."""

    def forward() -> None:
        with torch.no_grad(), pool.runtime.arithmetic(pool.precision):
            pool.model(x)

    def gradient() -> None:
        def objective(point: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            logits = pool.model(point).float()
            return logits.amax(dim=1).sum(), (logits, logits)

        with pool.runtime.arithmetic(pool.precision):
            input_gradient(objective, x)

    x = _filled(images, min(4, width)).x
    gradient()
    width = min(width, _affordable(0.1 * BUDGET_S, timed(gradient, 1) / len(x), width))
    x = _filled(images, width).x
    gradient()
    each = [timed(work, 1 if timed(work, 1) > 0.05 * BUDGET_S else 3) for work in (forward, gradient)]
    return each[0] / width, each[1] / width, width


def _filled(images: Images, width: int) -> Images:
    """So many images, the same ones again and again."""
    return images.of(torch.arange(width, device=images.x.device) % len(images.x))


def _step_s(stage: Stage, images: Images, pool: Pool, width: int, end: float) -> float | None:
    """Seconds of a step of a search, per forward of an image; None for other attacks and when time is over."""
    attack = stage.attack
    if not hasattr(attack, "begin") or time.monotonic() > end:
        return None
    rows = _filled(images, width)
    none = torch.zeros_like(rows.y)
    aimed = ranking(rows.clean, rows.y)[:, 0] if getattr(attack, "targets", 0) else none - 1
    work = Work(
        x=rows.x, y=rows.y, target=aimed, keys=randomness.make_keys(rows.keys, attack.seed), restart=none,
        steps=none + attack.steps, clean=rows.clean, start=rows.x, warm=none.bool(),
    )  # fmt: skip
    slots = Slots(attack, lambda state: attack.step(pool.model, state), pool.runtime, pool.precision)
    slots.seat(work, width)
    slots.advance(1)
    slots.read()
    slots.advance(5 if slots.passing_s < 0.05 * BUDGET_S else 1)
    slots.read()
    return slots.passing_s / width / attack.cost(images.clean.shape[1]).forwards


# ---------------------------------------------------------------- who stands

_Found = tuple[float, tuple[float, float], tuple[float, ...], float]


def _siege(model: nn.Module, stage: Stage, images: Images, pool: Pool, measure: Measure) -> _Found:
    """A short form of a stage: who stands, what the fallen had cost, which rounds and suspicions await the rest."""
    attack, n = stage.attack, len(images.x)
    if n == 0 or not hasattr(attack, "steps"):
        return 1.0, (0.0, 0.0), tuple(1.0 for _ in stage.rounds), 0.0
    fields = {item.name for item in dataclasses.fields(attack)}
    short = {
        "steps": min(STEPS, attack.steps),
        "restarts": 1,
        "targets": min(getattr(attack, "targets", 0), 1),
        "plans": (),
    }
    attack = dataclasses.replace(attack, **{name: value for name, value in short.items() if name in fields})
    prediction = images.clean.argmax(dim=1)
    attack_run = AttackRun(images, [Stage(attack)], standing=torch.ones_like(prediction).bool(), prediction=prediction)
    attack_run.run(model, pool, measure.verifier)
    stand, fell = attack_run.standing, ~attack_run.standing
    early = [
        float(spent[fell].double().mean()) if fell.any() else 0.0
        for spent in (attack_run.forwards, attack_run.backwards)
    ]
    attempts = Attempts(images, 1)
    attempts.margin = success_margin(measure.verifier.logits(attack_run.x_adv), images.y, images.y, reach=False)
    rows = stand.nonzero()[:, 0].cpu().numpy()
    rounds = [
        1.0 if part.enters is None or not len(rows) else float(part.enters(attempts, images, rows).mean())
        for part in stage.rounds
    ]
    odd = stand & (attack_run.zero_gradient | attack_run.not_finite | attack_run.flat)
    suspects = float(odd.sum()) / max(len(rows), 1)
    return len(rows) / n, (early[0], early[1]), tuple(rounds), suspects
