"""A short trial of an evaluation's attacks: how fast a pass is, how many images are broken and what they take.

It runs what the evaluation would run: the same fast copy of the model, the same precision, the same batch size. Where
that takes some seconds only, all attacks run to their end on some of the user's images; else a short form of the first
attack shows how many images remain correct. Slow models are tried on fewer images and smaller batches.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import AttackRun, RunProgress, repeats
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost, success_margin
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.base.cost import device_name
from hardtack.base.instruments import Stopwatch
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import count, head
from hardtack.evaluation.measure import Measure
from hardtack.evaluation.pass_times import PassTime, PassTimes, filled
from hardtack.evaluation.passes import StagePlan
from hardtack.evaluation.sanity import check_inputs, check_logits
from hardtack.evaluation.threat_stages import ThreatStages

BUDGET_S = 5.0
WHOLE_S = 5.0  # for all attacks, run to their end on some images
CLEAN_IMAGES, ATTACKED_IMAGES, FEWEST, STEPS = 256, 64, 16, 10


class Spent(NamedTuple):
    """What a stage spends, on average over the images that are correct when clean; `entered`: their share."""

    forwards: float = 0.0
    backwards: float = 0.0
    entered: float = 0.0


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
    whole: bool  # whether all attacks ran to their end on these
    forward_s: float  # per image, in fp32
    gradient_s: float  # forward and gradient, per image
    missing_mb: float = 0.0  # memory of a whole batch beyond that of the largest that was tried
    pool_s: float = 0.0  # once, until the pool is there
    survivors: tuple[float, ...] = ()  # of all attacks, or of the short form of the first
    spent: tuple[tuple[Spent, ...], ...] = ()  # by stage
    left_out: tuple[tuple[bool, ...], ...] = ()  # stages that are not run on this device
    times: tuple[tuple[PassTime, ...], ...] = ()  # by stage, of one pass of the pool or of one forward


def calibrate(
    model: nn.Module,
    data: Dataset | Any,
    measure: Measure,
    plans: list[list[StagePlan]],
    runtime: Runtime,
    watch: Stopwatch,
) -> Calibration:
    """Measure a short form of an evaluation's attacks. The caller has put the model into `preserve_state`."""
    began, trials = watch.now(), measure.trials
    x, y = _sample(data, 8, runtime)
    check_inputs(x, y, num_classes=getattr(model, "num_classes", None))
    measure.verifier.logits(x[:1])  # whatever the first call sets up
    few_s = watch.time(lambda: measure.verifier.logits(x)) / len(x)
    x, y = _sample(data, _affordable(0.2 * BUDGET_S, few_s, CLEAN_IMAGES), runtime)
    x = x.clamp(0, 1)
    clean = measure.verifier.logits(x)
    check_logits(clean, y, votes=measure.verifier.votes)
    inputs = AttackInputs(x, y, torch.arange(len(x), device=x.device), clean)
    correct = (clean.argmax(dim=1) == y).nonzero()[:, 0]
    began_pool = watch.now()
    pool = measure.pool(inputs)
    pool_s = watch.since(began_pool)
    accuracy = len(correct) / len(x)
    total = max(1, round(count(data) * accuracy))
    if not trials:
        return Calibration(
            device=device_name(runtime), precision=measure.precision, batch_size=measure.batch_size, every=pool.every,
            shape=measure.shape, classes=clean.shape[1], clean=accuracy, clean_images=len(x), attacked=0, whole=False,
            forward_s=watch.steady(lambda: measure.verifier.logits(x))[1] / len(x), gradient_s=0.0,
        )  # fmt: skip
    forward_s, gradient_s = _rates(measure, pool, inputs, min(measure.batch_size, total), watch)
    times = PassTimes(model, pool, inputs, watch, gradient_s=gradient_s)
    fallback = _fallback(plans, forward_s, gradient_s, pool.batch_size)
    each = [
        [
            PassTime() if repeats(list(trial.stages), place, pool)
            else times.of(stage, _at_once(stage, plan, total)) or other
            for place, (stage, plan, other) in enumerate(zip(trial.stages, part, others, strict=True))
        ]
        for trial, part, others in zip(trials, plans, fallback, strict=True)
    ]  # fmt: skip
    attacked = inputs.of(correct[:ATTACKED_IMAGES])
    few = _whole_images(plans, each, len(attacked.x), pool)
    left_s = WHOLE_S + BUDGET_S - watch.since(began)
    tried = (
        _whole_run(model, attacked.of(torch.arange(few, device=x.device)), pool, measure, plans)
        if few
        else _short_runs(model, attacked, pool, measure, plans, watch, left_s=left_s)
    )
    return Calibration(
        device=device_name(runtime), precision=measure.precision, batch_size=measure.batch_size, every=pool.every,
        shape=measure.shape, classes=clean.shape[1], clean=accuracy, clean_images=len(x), whole=few > 0,
        attacked=few or tried.images, forward_s=forward_s, gradient_s=gradient_s, missing_mb=times.missing_mb,
        pool_s=pool_s, survivors=tried.survivors, spent=tried.spent,
        left_out=tuple(
            tuple(repeats(list(trial.stages), place, pool) for place in range(len(trial.stages))) for trial in trials
        ),
        times=tuple(map(tuple, each)),
    )  # fmt: skip


def _sample(data: Any, most: int, runtime: Runtime) -> tuple[Tensor, Tensor]:
    most = min(most, count(data))
    return head(data if isinstance(data, tuple) else data.first(most), runtime.torch_device, first=most)


def _affordable(seconds: float, each_s: float, most: int) -> int:
    return max(4, min(most, int(seconds / max(each_s, 1e-9))))


def _at_once(stage: Stage, plan: StagePlan, total: int) -> int:
    """How many items of a stage can be in a pass together: all attempts of its widest round, on all images."""
    return total * max((len(part.attempts) for part, _ in plan.rounds), default=1)


# ---------------------------------------------------------------- how fast


def _rates(measure: Measure, pool: Pool, inputs: AttackInputs, width: int, watch: Stopwatch) -> tuple[float, float]:
    """Seconds of a forward in fp32 and of a forward with gradient, per image."""

    def gradient() -> None:
        def objective(point: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            logits = pool.model(point).float()
            return logits.amax(dim=1).sum(), (logits, logits)

        with pool.runtime.arithmetic(pool.precision):
            input_gradient(objective, x)

    x = filled(inputs, min(4, width)).x
    gradient()
    width = min(width, _affordable(0.1 * BUDGET_S, watch.time(gradient) / len(x), width))
    x = filled(inputs, width).x
    each = []
    for work in (lambda: measure.verifier.logits(x), gradient):
        each.append(watch.steady(work)[1])
    return each[0] / width, each[1] / width


def _fallback(plans: list[list[StagePlan]], forward_s: float, gradient_s: float, width: int) -> list[list[PassTime]]:
    """Of attacks that cannot be tried: by the share of their passes that have a gradient."""

    def time(plan: StagePlan) -> PassTime:
        share = min(plan.most.backwards / plan.most.forwards, 1.0) if plan.most.forwards else 0.0
        each_s = (1 - share) * forward_s + share * gradient_s
        return PassTime(each_s * (plan.step.forwards if plan.rounds else 1), width=width)

    return [[time(plan) for plan in part] for part in plans]


def stage_seconds(plan: StagePlan, time: PassTime, forwards: float, images: float) -> float:
    """Seconds of so many forward passes of a stage, spent on so many images."""
    if not plan.rounds:
        return time.seconds(forwards)
    items = forwards / max(plan.step.forwards, 1)
    longest = items / max(images, 1e-9) if images else 0.0  # of one image: attempts of a round run side by side
    return time.seconds(items, chain=min(plan.chain, max(longest, 1.0)) * min(images, 1.0))


# ---------------------------------------------------------------- how many images remain correct


class _TrialRun(NamedTuple):
    images: int
    survivors: tuple[float, ...]
    spent: tuple[tuple[Spent, ...], ...]


def _whole_images(plans: list[list[StagePlan]], times: list[list[PassTime]], most: int, pool: Pool) -> int:
    """On how many images all attacks can run to their end: 0 where fewer than 16 of more could."""
    for images in dict.fromkeys((most, most // 2, FEWEST)):
        pairs = [pair for part in zip(plans, times, strict=True) for pair in zip(*part, strict=True)]
        seconds = sum(
            stage_seconds(plan, time, images * plan.most.forwards, images) for plan, time in pairs if not plan.only
        )
        if min(FEWEST, most) <= images <= most and images and seconds <= WHOLE_S:
            return images
    return 0


def _whole_run(
    model: nn.Module, inputs: AttackInputs, pool: Pool, measure: Measure, plans: list[list[StagePlan]]
) -> _TrialRun:
    """All attacks on these images, to their end."""
    table, images = VerdictTable(inputs, trials=len(measure.trials)), len(inputs.y)
    survivors, spent = [], []
    for number, trial in enumerate(measure.trials):
        table.begin_trial(number, follows=trial.follows)
        sums: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]

        def tell(progress: RunProgress, number: int = number, sums: list[Any] = sums) -> None:
            if progress.record is None and progress.stage == len(sums):
                sums.append((*_sums(table, number), progress.remaining / images))

        entering = float(table.remaining[number].float().mean())
        AttackRun(table, list(trial.stages), trial=number).run(model, pool, measure.verifier, tell)
        table.finish_trial(number, trial.threat)
        stages = []
        for before, after in itertools.pairwise(sums):
            forwards, backwards = (after[at] - before[at] for at in (0, 1))
            stages.append(Spent(forwards / images, backwards / images, entering if forwards else 0.0))
            entering = after[2]
        spent.append(tuple(stages))
        survivors.append(float(table.remaining[number].float().mean()))
    return _TrialRun(images, tuple(survivors), tuple(spent))


def _sums(table: VerdictTable, trial: int) -> tuple[float, float]:
    return float(table.forwards[trial].sum()), float(table.backwards[trial].sum())


def _short_runs(
    model: nn.Module,
    inputs: AttackInputs,
    pool: Pool,
    measure: Measure,
    plans: list[list[StagePlan]],
    watch: Stopwatch,
    *,
    left_s: float,
) -> _TrialRun:
    """A short form of the first attack of each trial; what later ones break is not known."""
    began, survivors, spent, run = watch.now(), [], [], _ShortRun()
    entering = 1.0
    for number, (trial, part) in enumerate(zip(measure.trials, plans, strict=True)):
        if number == 0 or watch.since(began) < left_s:  # else as the one before
            run = _short_run(model, trial.stages[0], inputs, pool, measure)
        entering = entering if trial.follows else 1.0
        spent.append(tuple(_expected(trial, part, run, entering, pool)))
        survivors.append(min(run.survivors, entering) if trial.follows else run.survivors)
        entering = survivors[-1]
    return _TrialRun(len(inputs.y), tuple(survivors), tuple(spent))


def _expected(trial: ThreatStages, plans: list[StagePlan], run: _ShortRun, entering: float, pool: Pool) -> list[Spent]:
    stand, found = min(run.survivors / max(entering, 1e-9), 1.0), []
    for place, (stage, plan) in enumerate(zip(trial.stages, plans, strict=True)):
        if repeats(list(trial.stages), place, pool):
            found.append(Spent())
            continue
        most: tuple[float, float] = tuple(map(float, plan.most))  # type: ignore[assignment]
        if place > 0:
            share = entering * stand * (run.suspects if stage.suspects else stage.near or 1.0)
            found.append(Spent(share * most[0], share * most[1], share))
            continue
        early = run.early if plan.rounds or stage.attack.leaves_when_fooled else most
        if len(plan.rounds) > 1:
            most = _weighted([cost for _, cost in plan.rounds], run.rounds)
        both = [entering * (stand * whole + (1 - stand) * short) for whole, short in zip(most, early, strict=True)]
        found.append(Spent(both[0], both[1], entering))
    return found


def _weighted(costs: list[Cost], shares: tuple[float, ...]) -> tuple[float, float]:
    pairs = list(zip(costs, shares, strict=True))
    return sum(cost.forwards * share for cost, share in pairs), sum(cost.backwards * share for cost, share in pairs)


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
