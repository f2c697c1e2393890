"""What an evaluation will cost (`hardtack plan RUN`; training/plan.py is for a training run).

The number of passes of an image that no attack breaks follows exactly from the attacks (passes.py). How many images are
broken, how long a pass takes and how much memory it needs are measured in some seconds on some of the user's own images
(calibrate.py), and so is what an evaluation does beside its attacks (rehearsal.py).
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from hardtack.attacks import preserve_state
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.base.allocator import keep_freed_memory
from hardtack.base.config import build
from hardtack.base.instruments import Instruments, Stopwatch
from hardtack.base.new_kernels import new_kernels
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import check_pair, head, shape_of
from hardtack.evaluation.calibrate import Calibration, calibrate, stage_seconds
from hardtack.evaluation.evaluation_plan import AuditCost, Bill, Plan, Plans
from hardtack.evaluation.job import read_job
from hardtack.evaluation.measure import Measure, piece_rows
from hardtack.evaluation.measure_views import ViewMeasure, view_piece_rows
from hardtack.evaluation.pass_times import PassTime, PassTimes
from hardtack.evaluation.passes import StagePlan, passes
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.rehearsal import Rehearsal, Rehearsed
from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings
from hardtack.evaluation.suite import SuiteJob
from hardtack.evaluation.target import load_target, note_missing_images
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages
from hardtack.evaluation.views import View

_COPIES = 5  # of a piece's images that attacks keep: the closest found, those being searched, those that broke


def plan_run(run: str | Path | None, values: Mapping[str, Any], instruments: Instruments | None = None) -> Plans:
    """What `evaluate` with the same settings will cost, for a run folder or a named model."""
    instruments = instruments or Instruments()
    job = read_job(run, values)
    target = note_missing_images(load_target(run, job), job.n)
    parts: list[Plan | str] = []
    for item in job.configs():
        parts.append(
            plan_evaluation(
                target.model, target.data, config=item, runtime=job.runtime, instruments=instruments, first=not parts
            )
        )
    return Plans(tuple(parts))


def plan_evaluation(
    model: nn.Module,
    data: Dataset | tuple[torch.Tensor, torch.Tensor],
    *,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    instruments: Instruments | None = None,
    first: bool = True,
    **settings: Any,
) -> Plan:
    """What `evaluate` with the same arguments will cost. `first`: in its process, whose start is then counted."""
    check_pair(data)
    config, runtime = config or build(EvaluationConfig, gather_suite_settings(settings)), runtime or Runtime()
    instruments = instruments or Instruments()
    device, home = runtime.torch_device, next(iter(model.parameters()), torch.empty(0)).device
    watch = Stopwatch(instruments, device)
    keep_freed_memory()  # as the evaluation does
    start_s = watch.since(instruments.began) + instruments.end_s(device) if first else 0.0
    planned = watch.now()
    try:
        with tempfile.TemporaryDirectory() as folder:
            instruments.begin_memory(device)
            with new_kernels() as kernels:
                made = _make(model, data, config, runtime, watch, Path(folder))
    finally:
        model.to(home)
    plan_s = instruments.now().since(planned).wall_s
    return dataclasses.replace(
        made, start_s=start_s, kernels_s=kernels.seconds, load=instruments.load(device), plan_s=plan_s
    )


def _make(
    model: nn.Module, data: Any, config: EvaluationConfig, runtime: Runtime, watch: Stopwatch, folder: Path
) -> Plan:
    began = watch.now()
    job = SuiteJob(model, data, config, runtime=runtime, folder=folder, provenance=Provenance())
    with job.session(), preserve_state(model):
        rehearsal = Rehearsal(job, watch)
        rehearsal.begin(watch.since(began))
        columns = rehearsal.piece()
        measure = job.measure
        if isinstance(measure, ViewMeasure):
            measure = Measure(model, [], config, runtime, like=torch.zeros(1, *measure.shape))
        shape = tuple(shape_of(data))
        trials = [trial for trial in measure.trials if trial.threat.eps > 0]
        measure.trials = trials
        classes = _classes(model, data, runtime)
        each = [passes(trial.stages, classes, every=_every(runtime), shape=shape) for trial in trials]
        tried = calibrate(model, data, measure, each, runtime, watch)
        audits = _audits(job, rehearsal, trials, tried, watch) if trials and not job.random else []
        rehearsal.end(columns)
    peak_mb = watch.instruments.peak_mb(watch.device)
    return _plan(job, trials, each, tried, rehearsal.found, audits, peak_mb)


def _every(runtime: Runtime) -> int:
    return 5 if runtime.torch_device.type == "cuda" else 2


@torch.no_grad()
def _classes(model: nn.Module, data: Any, runtime: Runtime) -> int:
    x, _ = head(data, runtime.torch_device, first=1)
    with runtime.arithmetic("fp32"):
        return int(model(x.clamp(0, 1)).shape[1])


# ---------------------------------------------------------------- audits


def _audits(
    job: SuiteJob, rehearsal: Rehearsal, trials: Sequence[ThreatStages], tried: Calibration, watch: Stopwatch
) -> list[AuditCost]:
    """Of every threat that is audited: the sample by survivors, and the seconds of so large a sample."""
    x, _ = head(job.data, job.runtime.torch_device, first=64)
    measure, costs = job.measure, []
    assert isinstance(measure, Measure)
    x = x.clamp(0, 1)
    clean = measure.verifier.logits(x)
    inputs = AttackInputs(x, clean.argmax(dim=1), torch.arange(len(x), device=x.device), clean)
    audited = [trials[-1]] if job.identity.suite.curve else list(trials)
    for trial in audited:
        plan = trial.audit or AuditPlan(sample=job.config.audit)
        if plan.size(job.total) == 0:
            continue
        if not rehearsal.found.examine_s:
            rehearsal.examine(inputs, trial.threat)
        survivors = tried.clean * tried.survivors[list(trials).index(trial)]
        times = _audit_times(job, trial, plan, inputs, tried, watch)
        costs.append(AuditCost(plan, survivors, tuple(times)))
    return costs


def _audit_times(
    job: SuiteJob, trial: ThreatStages, plan: AuditPlan, inputs: AttackInputs, tried: Calibration, watch: Stopwatch
) -> list[tuple[StagePlan, PassTime]]:
    if not plan.stages:
        return []
    attacks, on_gpu = ThreatStages(threat=trial.threat, stages=plan.stages), job.runtime.torch_device.type == "cuda"
    measure = Measure(
        job.model, [attacks], job.config, job.runtime, like=inputs.x[:2], on_the_model="tf32" if on_gpu else "fp32"
    )
    pool, settled = measure.pool(inputs), measure.trials[0].stages
    times = PassTimes(job.model, pool, inputs, watch, gradient_s=tried.gradient_s)
    planned = passes(settled, tried.classes, every=tried.every, shape=tried.shape)
    sample = plan.size(job.total)
    return [
        (part, times.of(stage, sample) or PassTime(tried.gradient_s, width=pool.batch_size))
        for stage, part in zip(settled, planned, strict=True)
    ]


# ---------------------------------------------------------------- the sum


class _Bills(NamedTuple):
    least: Bill
    expected: Bill
    most: Bill


def _plan(
    job: SuiteJob,
    trials: Sequence[ThreatStages],
    each: Sequence[Sequence[StagePlan]],
    tried: Calibration,
    found: Rehearsed,
    audits: Sequence[AuditCost],
    peak_mb: float,
) -> Plan:
    n, config, views = job.total, job.config, job.views
    pooled = any(stage.attack.pooled for trial in trials for stage in trial.stages)

    def rows(most: int) -> int:
        size = view_piece_rows if views else piece_rows
        extra: dict[str, Any] = {"views": views} if views else {"pooled": pooled}
        return config.chunk_size or size(tried.shape, tried.batch_size, job.runtime, most=most, **extra)

    piece = max(1, min(n, rows(n)))
    forwards, backwards = (sum(view.cost[at] for view in views) for at in (0, 1))
    clean = Bill(n, 0, found.piece.seconds(n, -(-n // piece)))
    clean = clean.plus(Bill(n * forwards, n * backwards, n * found.views_s))
    bills, setup_s = _attack_bills(trials, each, tried, n)
    one = trials[0] if trials else None
    exact = config.suite == "autoattack" and config.version == "standard" and config.tier in ("exact", "verified")
    copies = _COPIES * bool(trials) * piece * torch.Size(tried.shape).numel() * 4 / 2**20
    return Plan(
        title=f"{config.suite}: {one.words} at {', '.join(str(trial.threat) for trial in trials)}" if one
        else _views_title(config, views), images=n, shape=tried.shape, classes=tried.classes, tried=tried,
        stages=tuple((str(trial.threat), stage) for trial, part in zip(trials, each, strict=True) for stage in part),
        least=clean.plus(bills.least), expected=clean.plus(bills.expected), most=clean.plus(bills.most),
        keep=config.keep, rehearsed=found, audits=tuple(audits),
        setup_s=setup_s + found.setup_s + tried.pool_s * bool(trials),
        memory_mb=peak_mb + max(0, piece - found.tried) * found.image_mb + copies + tried.missing_mb,
        on_gpu=job.runtime.torch_device.type == "cuda",
        official=exact and one is not None and len(trials) == 1 and one.threat.norm != "l1" and tried.classes >= 10,
        piece_rows=rows,
    )  # fmt: skip


def _attack_bills(
    trials: Sequence[ThreatStages], each: Sequence[Sequence[StagePlan]], tried: Calibration, n: int
) -> tuple[_Bills, float]:
    """The least, the expected and the most that attacks on n images take, and what is set up once."""
    least, expected, most, setups = Bill(), Bill(), Bill(), {}
    correct = n * tried.clean
    for number, (trial, stages) in enumerate(zip(trials, each, strict=True)):
        for place, planned in enumerate(stages):
            time, spent = tried.times[number][place], tried.spent[number][place]
            if tried.left_out[number][place]:
                continue
            setups[id(time)] = time.setup_s
            if place == 0 and not (trial.follows and number):
                least = least.plus(_stage_bill(planned, time, planned.least, correct, tried.forward_s))
            most = most.plus(_stage_bill(planned, time, planned.most, n, tried.forward_s))
            if entered := correct * spent.entered:
                mean = (spent.forwards / spent.entered, spent.backwards / spent.entered)
                expected = expected.plus(_stage_bill(planned, time, mean, entered, tried.forward_s))
        if trial.follows and number:
            broken = correct * max(0.0, tried.survivors[number - 1] - tried.survivors[number])
        else:
            broken = correct * (1 - tried.survivors[number])
        expected = expected.plus(Bill(0, 0, broken * tried.forward_s))
    return _Bills(least, expected, most), sum(setups.values())


def _stage_bill(planned: StagePlan, time: PassTime, spent: Sequence[float], images: float, check_s: float) -> Bill:
    """A stage on so many images, each of which takes `spent` forwards and backwards and a check at the end."""
    forwards = images * spent[0]
    return Bill(forwards + images, images * spent[1], stage_seconds(planned, time, forwards, images) + images * check_s)


def _views_title(config: EvaluationConfig, views: Sequence[View]) -> str:
    count = sum(view.cost.forwards for view in views)
    return f"{config.suite}: {count} views of every image" if views else config.suite
