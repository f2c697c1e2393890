"""A short trial of an evaluation: how fast the model is, how much memory it takes, how many images remain correct.

It runs what the evaluation would run: the same fast copy of the model, the same precision, the same batch size, and a
step of each search. Slow models are tried on fewer images and smaller batches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.pool.attack_run import AttackRun
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost, NewItems, success_margin
from hardtack.attacks.pool.slots import Slots
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.attacks.targets import ranking
from hardtack.base import randomness
from hardtack.base.allocator import keep_freed_memory
from hardtack.base.cost import device_name, timed
from hardtack.base.instruments import Instruments
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import count, head
from hardtack.evaluation.measure import Measure
from hardtack.evaluation.sanity import check_inputs, check_logits
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import ThreatStages

BUDGET_S = 5.0
CLEAN_IMAGES, ATTACKED_IMAGES, STEPS = 256, 64, 10


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured. Lists have an entry for each trial; shares are of the images that are correct when clean."""

    device: str
    precision: str
    batch_size: int
    every: int  # passes between two checks of the pool
    shape: tuple[int, ...]
    classes: int
    clean: float  # accuracy
    clean_images: int
    attacked: int  # images of the short attack
    forward_s: float  # per image
    gradient_s: float  # forward and gradient, per image
    memory_mb: float
    survivors: tuple[float, ...] = ()  # of a short form of the first stage
    early: tuple[tuple[float, float], ...] = ()  # forwards and backwards of an image that it broke
    rounds: tuple[tuple[float, ...], ...] = ()  # which share of the survivors enters each round of the first stage
    suspects: tuple[float, ...] = ()  # which share of the survivors goes to stages for suspects
    steps_s: tuple[tuple[float | None, ...], ...] = ()  # of each stage's search, one forward of one image

    def pass_s(self, trial: int, stage: int, cost: Cost) -> float:
        """Seconds of one forward of a stage, its share of the gradients included."""
        measured = self.steps_s[trial][stage]
        if measured is not None or not cost.forwards:
            return measured or 0.0
        with_gradient = min(cost.backwards / cost.forwards, 1.0)
        return (1 - with_gradient) * self.forward_s + with_gradient * self.gradient_s


def calibrate(
    model: nn.Module,
    data: Dataset | Any,
    trials: list[ThreatStages],
    config: EvaluationConfig,
    runtime: Runtime,
    instruments: Instruments | None = None,
) -> Calibration:
    """Measure a short form of an evaluation; the model is left as it was."""
    instruments = instruments or Instruments()
    device, home = runtime.torch_device, next(iter(model.parameters()), torch.empty(0)).device
    model.to(device)
    try:
        with preserve_state(model), guard_input(model):
            return _calibrate(model, data, trials, config, runtime, instruments)
    finally:
        model.to(home)


def _calibrate(
    model: nn.Module,
    data: Any,
    trials: list[ThreatStages],
    config: EvaluationConfig,
    runtime: Runtime,
    instruments: Instruments,
) -> Calibration:
    end = time.monotonic() + BUDGET_S
    keep_freed_memory()  # as the evaluation does
    x, y = _sample(data, 8, runtime)
    check_inputs(x, y, num_classes=getattr(model, "num_classes", None))
    measure = Measure(model, trials, config, runtime, like=x)
    measure.verifier.logits(x[:1])  # whatever the first call sets up
    few_s = timed(lambda: measure.verifier.logits(x), 1) / len(x)
    x, y = _sample(data, _affordable(0.2 * BUDGET_S, few_s, CLEAN_IMAGES), runtime)
    x = x.clamp(0, 1)
    clean = measure.verifier.logits(x)
    check_logits(clean, y, votes=measure.verifier.votes)
    inputs = AttackInputs(x, y, torch.arange(len(x), device=x.device), clean)
    correct = (clean.argmax(dim=1) == y).nonzero()[:, 0]
    pool = measure.pool(inputs)
    width = min(measure.batch_size, max(count(data), 1) * (9 if measure.pooled else 1))
    instruments.begin_memory(runtime.torch_device)
    forward_s, gradient_s, width = _rates(pool, inputs, width)
    attacked = inputs.of(correct[: _affordable(0.2 * BUDGET_S, (STEPS + 1) * gradient_s, ATTACKED_IMAGES)])
    shorts: list[_ShortRun] = []
    for trial in trials:
        if shorts and time.monotonic() > end:  # no time left: as the one before
            shorts.append(shorts[-1])
        else:
            shorts.append(_short_run(model, trial.stages[0], attacked, pool, measure))
    steps_s = [[_step_s(stage, inputs, pool, width, end) for stage in trial.stages] for trial in trials]
    return Calibration(
        device=device_name(runtime), precision=measure.precision, batch_size=measure.batch_size, every=pool.every,
        shape=measure.shape, classes=clean.shape[1], clean=len(correct) / len(x), clean_images=len(x),
        attacked=len(attacked.x) if trials else 0, forward_s=forward_s, gradient_s=gradient_s,
        memory_mb=instruments.peak_mb(runtime.torch_device), survivors=tuple(short.survivors for short in shorts),
        early=tuple(short.early for short in shorts), rounds=tuple(short.rounds for short in shorts),
        suspects=tuple(short.suspects for short in shorts), steps_s=tuple(map(tuple, steps_s)),
    )  # fmt: skip


def _sample(data: Any, most: int, runtime: Runtime) -> tuple[Tensor, Tensor]:
    most = min(most, count(data))
    return head(data if isinstance(data, tuple) else data.first(most), runtime.torch_device, first=most)


def _affordable(seconds: float, each_s: float, most: int) -> int:
    return max(4, min(most, int(seconds / max(each_s, 1e-9))))


# ---------------------------------------------------------------- how fast


def _rates(pool: Pool, inputs: AttackInputs, width: int) -> tuple[float, float, int]:
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

    x = _filled(inputs, min(4, width)).x
    gradient()
    width = min(width, _affordable(0.1 * BUDGET_S, timed(gradient, 1) / len(x), width))
    x = _filled(inputs, width).x
    gradient()
    each = [timed(work, 1 if timed(work, 1) > 0.05 * BUDGET_S else 3) for work in (forward, gradient)]
    return each[0] / width, each[1] / width, width


def _filled(inputs: AttackInputs, width: int) -> AttackInputs:
    """So many images, by repeating the given ones."""
    return inputs.of(torch.arange(width, device=inputs.x.device) % len(inputs.x))


def _step_s(stage: Stage, inputs: AttackInputs, pool: Pool, width: int, end: float) -> float | None:
    """Seconds of a step of a search, per forward of an image; None for batch attacks, and when no time is left."""
    attack = stage.attack
    if not attack.pooled or time.monotonic() > end:
        return None
    rows = _filled(inputs, width)
    none = torch.zeros_like(rows.y)
    target = ranking(rows.clean, rows.y)[:, 0] if attack.targets else none - 1
    items = NewItems(
        x=rows.x, y=rows.y, target=target, keys=randomness.make_keys(rows.keys, attack.seed), image_keys=rows.keys,
        restart=none, steps=none + (attack.steps or 0), clean=rows.clean, start=rows.x, warm=none.bool(),
    )  # fmt: skip
    slots = Slots(attack, pool.model, pool.runtime, pool.precision, most=width, interval=5)
    slots.place(items)
    slots.advance(1)
    slots.read()
    slots.advance(5 if slots.passing_s < 0.05 * BUDGET_S else 1)
    slots.read()
    return slots.passing_s / width / attack.cost(inputs.clean.shape[1]).forwards


# ---------------------------------------------------------------- how many images remain correct


class _ShortRun(NamedTuple):
    """Shares are of the attacked images (`survivors`) or of those that survived the short form of the stage."""

    survivors: float = 1.0
    early: tuple[float, float] = (0.0, 0.0)  # mean forwards and backwards on a broken image
    rounds: tuple[float, ...] = ()  # share that enters each round
    suspects: float = 0.0  # share on which gradients gave no direction


def _short_run(model: nn.Module, stage: Stage, inputs: AttackInputs, pool: Pool, measure: Measure) -> _ShortRun:
    """Run a short form of a stage."""
    attack = stage.attack.shortened(STEPS)
    if len(inputs.y) == 0 or attack is None:
        return _ShortRun(rounds=tuple(1.0 for _ in stage.rounds))
    table = VerdictTable(inputs)
    table.begin_trial(0)
    AttackRun(table, [Stage(attack)]).run(model, pool, measure.verifier)
    robust, broken = table.robust, ~table.robust
    early = [
        float(spent[0][broken].double().mean()) if broken.any() else 0.0 for spent in (table.forwards, table.backwards)
    ]
    record = AttemptRecord(inputs, 1)
    record.margin = success_margin(measure.verifier.logits(table.x_adv), inputs.y, inputs.y, reach=False)
    rows = robust.nonzero()[:, 0].cpu().numpy()
    rounds = [
        1.0 if part.near is None or not len(rows) else float(record.is_near(inputs, rows, part.near).mean())
        for part in stage.rounds
    ]
    suspects = float((robust & table.suspects(0)).sum()) / max(len(rows), 1)
    return _ShortRun(len(rows) / len(inputs.y), (early[0], early[1]), tuple(rounds), suspects)
