"""What an evaluation will cost (`hardtack plan RUN`; training/plan.py is for a training run).

The number of passes of an image that no attack breaks follows exactly from the attacks. How many images are broken, how
long a pass takes and how much memory it needs are measured in a few seconds on a few of the user's own images.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hardtack.attacks import preserve_state
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.pool.attack_run import counted
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.config import build
from hardtack.base.cost import duration, text_table
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import check_pair, count, head, original_of
from hardtack.evaluation.calibrate import Calibration, calibrate
from hardtack.evaluation.job import read_job
from hardtack.evaluation.measure import piece_rows
from hardtack.evaluation.measure_views import view_piece_rows
from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings
from hardtack.evaluation.suites import SuiteContext, make_suite
from hardtack.evaluation.target import load_target, note_missing_images
from hardtack.evaluation.threat_stages import ThreatStages
from hardtack.evaluation.views import View

# passes of the official implementation for an image that no attack breaks: clean logits again at the start of every
# attack and of every target, the search, and a check at the end
OFFICIAL = {
    "clean": Cost(1, 0),
    "apgd_ce": Cost(1 + 101 + 1, 101),
    "apgd_t": Cost(1 + 9 * (1 + 101) + 1, 9 * 101),
    "fab_t": Cost(1 + 9 * (2 + 2 * 100 + 1) + 1, 9 * 100),
    "square": Cost(1 + 1 + 5000 + 1 + 1, 0),
}


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What a stage spends on one image, without the verification of its success."""

    name: str
    attempts: str  # in words: 9 × 101
    most: Cost  # the image is not broken
    least: Cost  # the image is broken at the first check
    rounds: tuple[tuple[Round, Cost], ...] = ()  # the most that each round of a search costs
    only: str = ""  # which images it runs on, if not on all that remain correct
    cost_known: bool = True


def passes(
    stages: Sequence[Stage], classes: int, *, every: int = 1, shape: tuple[int, ...] = (3, 8, 8)
) -> list[StagePlan]:
    """The passes of one image through the model, stage by stage. The pool checks every `every` passes."""
    return [
        _pooled(stage, classes, every) if stage.attack.pooled else _called(stage, classes, shape) for stage in stages
    ]


def _pooled(stage: Stage, classes: int, every: int) -> StagePlan:
    attack = stage.attack
    rounds = stage.rounds_for(classes)
    lengths = [[attack.length(attempt.steps) for attempt in part.attempts] for part in rounds]
    each = tuple(
        (part, _sum(attack.attempt_cost(attack.length(a.steps), a.steps, classes) for a in part.attempts))
        for part in rounds
    )
    first = rounds[0].attempts[0].steps
    words = [
        " + ".join(f"{own.count(length)} × {length}" for length in sorted(set(own)))
        + (" if near the boundary" if part.near is not None else "")
        for part, own in zip(rounds, lengths, strict=True)
    ]
    return StagePlan(
        name=stage.name, attempts=" + ".join(words), most=_sum(cost for _, cost in each),
        least=attack.attempt_cost(min(every, lengths[0][0]), first, classes), rounds=each, only=_only(stage),
    )  # fmt: skip


def _sum(costs: Iterable[Cost]) -> Cost:
    return functools.reduce(Cost.plus, costs, Cost())


def _called(stage: Stage, classes: int, shape: tuple[int, ...]) -> StagePlan:
    """A batch attack; its passes are counted on a small linear model where it does not state them itself."""
    attack, pixels = stage.attack, torch.Size(shape).numel()
    attempts = f"{attack.restarts} × {attack.steps or '?'} steps"
    if (stated := attack.batch_cost(classes, shape)) is not None:
        return StagePlan(name=stage.name, attempts=attempts, most=stated, least=stated, only=_only(stage))
    model = nn.Sequential(nn.Flatten(), nn.utils.skip_init(nn.Linear, pixels, classes))
    for parameter in model.parameters():
        parameter.data = torch.arange(parameter.numel()).sin().reshape(parameter.shape)
    x = torch.full((1, *shape), 0.5)
    try:
        with preserve_state(model), counted(model) as spent:
            attack.search(model, x, model(x).argmax(dim=1), verdict=True)
        cost, cost_known = Cost(spent[0] - 1, spent[1]), True
    except Exception:  # the attack does not run on the linear model: its cost is not known
        cost, cost_known = Cost(), False
    return StagePlan(
        name=stage.name, attempts=attempts, most=cost, least=cost, only=_only(stage), cost_known=cost_known
    )


def _only(stage: Stage) -> str:
    return "zero gradients only" if stage.suspects else "near the boundary, in fp32" if stage.near is not None else ""


# ---------------------------------------------------------------- the total


@dataclass(frozen=True)
class Bill:
    """Passes of images, and the seconds they take."""

    forwards: float = 0.0
    backwards: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Bill, times: float = 1.0) -> Bill:
        return Bill(
            self.forwards + times * other.forwards,
            self.backwards + times * other.backwards,
            self.seconds + times * other.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cost of an evaluation. `least`: every image is broken at the first check; `most`: no image is broken."""

    title: str
    images: int
    shape: tuple[int, ...]
    classes: int
    stages: tuple[tuple[str, StagePlan], ...]  # with the threat
    tried: Calibration
    least: Bill
    expected: Bill
    most: Bill
    official: bool = False  # it has the stages of the official implementation
    keep: bool = True
    piece_rows: Callable[[int], int] = lambda most: most  # rows of a piece, by the share of a worker

    @property
    def per_survivor(self) -> Cost:
        """Passes of an image that is not broken, with its clean prediction and one verification for each stage."""
        always = [stage for _, stage in self.stages if not stage.only]
        total = Cost(1 + len(always), 0)
        for stage in always:
            total = total.plus(stage.most)
        return total

    @property
    def disk_mb(self) -> tuple[float, float]:
        """Disk space of the adversarial images: expected, and at most."""
        image = torch.Size(self.shape).numel() * 4 / 2**20 * self.images * bool(self.stages) * self.keep
        broken = self.tried.clean * (1 - self.tried.survivors[-1]) if self.tried.survivors else 0.0
        return image * broken, image

    def __str__(self) -> str:
        stages = self._stages() if self.stages else []
        return "\n".join([*self._head(), *stages, *self._bills(), *self._official()])

    def _head(self) -> list[str]:
        tried, size = self.tried, "×".join(map(str, self.shape))
        forwards, gradients = 1 / tried.forward_s, 1 / tried.gradient_s
        lines = [
            f"plan: {self.title}, {self.images:,} images {size}, {self.classes} classes",
            f"  calibration: {tried.clean:.0%} of {tried.clean_images} clean images are classified correctly",
            f"  {tried.device}, batch {tried.batch_size}, {tried.precision} search: {forwards:,.0f} forwards/s, "
            f"{gradients:,.0f} forward+gradient/s, about {tried.memory_mb:,.0f} MB peak memory",
        ]
        if tried.attacked:
            correct = ", ".join(f"{share:.0%}" for share in tried.survivors)
            lines[1] += f"; of {tried.attacked} of these, {correct} after ten steps of the first attack"
        return lines

    def _stages(self) -> list[str]:
        rows = [("stage", "attempts × passes", "image not broken", "broken at once")]
        for threat, stage in self.stages:
            only = f" ({stage.only})" if stage.only else ""
            unknown = "not known"
            most, least = (_cost(stage.most), _cost(stage.least)) if stage.cost_known else (unknown, unknown)
            rows.append((f"{stage.name} {threat}", stage.attempts + only, most, least))
        checks = sum(not stage.only for _, stage in self.stages)
        rows.append(("clean, checks", f"1 + {checks}", _cost(Cost(1 + checks)), ""))
        some = any(stage.only for _, stage in self.stages)
        rows.append(("sum", "without those in parentheses" if some else "", _cost(self.per_survivor), ""))
        return ["", *text_table(rows)]

    def _bills(self) -> list[str]:
        rows = [("all images", "forwards", "backwards", "time")]
        bills = {"all broken at once": self.least, "expected (estimate)": self.expected, "none broken": self.most}
        for name, bill in bills.items() if self.stages else [("total", self.most)]:
            rows.append((name, f"{bill.forwards:,.0f}", f"{bill.backwards:,.0f}", duration(bill.seconds)))
        expected, most = self.disk_mb
        kept = f"  disk: about {expected:,.1f} MB of adversarial images, at most {most:,.1f} MB (keep=true)"
        unknown = [
            f"  {stage.name} is not included: its passes are not known"
            for _, stage in self.stages
            if not stage.cost_known
        ]
        return ["", *text_table(rows), *unknown, *([kept] if self.keep and self.stages else [])]

    def _official(self) -> list[str]:
        if not self.official:
            return []
        total = Cost()
        for cost in OFFICIAL.values():
            total = total.plus(cost)
        each = ", ".join(f"{name} {cost.forwards:,}/{cost.backwards:,}" for name, cost in OFFICIAL.items())
        spared = total.forwards - self.per_survivor.forwards
        return [
            f"  official implementation: {_cost(total)} for an image that is not broken ({each})",
            f"  saved here: {spared} repeated clean passes and checks; and all passes after the first success, because",
            "  the official implementation runs every attack to its last step",
        ]


def _cost(cost: Cost) -> str:
    return f"{cost.forwards:,} F" + (f" + {cost.backwards:,} B" if cost.backwards else "")


# ---------------------------------------------------------------- planning


@dataclass(frozen=True)
class Plans:
    """One plan for each suite; a text for a column of a protocol that cannot be measured."""

    parts: tuple[Plan | str, ...]

    def __str__(self) -> str:
        plans = [part for part in self.parts if isinstance(part, Plan)]
        total = f"expected in total: {duration(sum(plan.expected.seconds for plan in plans))}"
        return "\n\n".join([*map(str, self.parts), *([total] if len(plans) > 1 else [])])


def plan_run(run: str | Path | None, values: Mapping[str, Any]) -> Plans:
    """What `evaluate` with the same settings will cost, for a run folder or a named model."""
    job = read_job(run, values)
    target = note_missing_images(load_target(run, job), job.n)
    return Plans(
        tuple(plan_evaluation(target.model, target.data, config=item, runtime=job.runtime) for item in job.configs())
    )


def plan_evaluation(
    model: nn.Module,
    data: Dataset | tuple[torch.Tensor, torch.Tensor],
    *,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Plan:
    """What `evaluate` with the same arguments will cost."""
    check_pair(data)
    config = config or build(EvaluationConfig, gather_suite_settings(settings))
    runtime, suite = runtime or Runtime(), make_suite(config)
    trials = [trial for trial in suite.threat_stages(config, runtime.seed) if trial.threat.eps > 0]
    tried = calibrate(model, data, trials, config, runtime)
    each = [passes(trial.stages, tried.classes, every=tried.every, shape=tried.shape) for trial in trials]
    n = count(data)
    views = suite.views(config, SuiteContext(model, tried.shape, runtime.seed, original_of(data)))
    clean = Bill(n, 0, n * tried.forward_s).plus(_views_bill(model, views, data, runtime), n)
    least = most = expected = clean
    for number, (trial, stages) in enumerate(zip(trials, each, strict=True)):
        low, high, likely = _bill(trial, stages, tried, number)
        enters = tried.clean if not trial.follows or number == 0 else tried.clean * tried.survivors[number - 1]
        least = least.plus(low, 0 if trial.follows and number else n * tried.clean)
        most, expected = most.plus(high, n), expected.plus(likely, n * enters)
    pooled = any(stage.attack.pooled for trial in trials for stage in trial.stages)
    exact = config.suite == "autoattack" and config.version == "standard" and config.tier in ("exact", "verified")
    return Plan(
        title=f"{config.suite}: {trials[0].words} at {', '.join(str(trial.threat) for trial in trials)}" if trials
        else _views_title(config, views), images=n, shape=tried.shape, classes=tried.classes, tried=tried,
        stages=tuple((str(trial.threat), stage) for trial, part in zip(trials, each, strict=True) for stage in part),
        least=least, expected=expected, most=most, keep=config.keep,
        official=exact and len(trials) == 1 and trials[0].threat.norm != "l1" and tried.classes >= 10,
        piece_rows=lambda most: config.chunk_size
        or (view_piece_rows(tried.shape, tried.batch_size, runtime, most=most, views=views) if views
            else piece_rows(tried.shape, tried.batch_size, runtime, pooled=pooled, most=most)),
    )  # fmt: skip


def passes_of_settings(settings: Mapping[str, Any], classes: int, shape: tuple[int, ...] = (3, 32, 32)) -> int:
    """Passes of one image that no attack breaks, forward and backward together, from an evaluation's settings alone."""
    config: EvaluationConfig = build(EvaluationConfig, gather_suite_settings(dict(settings)))
    suite, seed = make_suite(config), 0
    total = 1
    for trial in suite.threat_stages(config, seed):
        for stage in passes(trial.stages, classes, shape=shape):
            total += 1 + stage.most.forwards + stage.most.backwards if not stage.only else 0
    model = nn.Sequential(nn.Flatten(), nn.utils.skip_init(nn.Linear, torch.Size(shape).numel(), classes))
    views = suite.views(config, SuiteContext(model, shape, seed))
    return total + sum(view.cost.forwards + view.cost.backwards for view in views)


def _views_bill(model: nn.Module, views: Sequence[View], data: Any, runtime: Runtime) -> Bill:
    """All views of one image; the time of each kind is measured on a few images."""
    if not views:
        return Bill()
    home = next(iter(model.parameters()), torch.empty(0)).device
    x, y = head(data, runtime.torch_device, first=32)
    numbers = data.index[: len(x)] if isinstance(data, Dataset) else torch.arange(len(x))
    index, total = numbers.to(x.device), Bill()
    try:
        verifier = Verifier(model.to(runtime.torch_device), runtime, batch_size=len(x))
        with preserve_state(model), guard_input(model), torch.no_grad():
            for kind, view in {view.kind: view for view in views}.items():
                costs = [other.cost for other in views if other.kind == kind]
                sample, times = view.sample()
                sample.columns(verifier, x, y, index)
                began = time.perf_counter()
                sum(column.sum().item() for column in sample.columns(verifier, x, y, index).values())
                seconds = times * (time.perf_counter() - began) / len(x)
                forwards, backwards = (sum(cost[at] for cost in costs) for at in (0, 1))
                total = total.plus(Bill(forwards, backwards, len(costs) * seconds))
    finally:
        model.to(home)
    return total


def _views_title(config: EvaluationConfig, views: Sequence[View]) -> str:
    count = sum(view.cost.forwards for view in views)
    return f"{config.suite}: {count} views of every image" if views else config.suite


def _bill(trial: ThreatStages, stages: Sequence[StagePlan], tried: Calibration, number: int) -> tuple[Bill, Bill, Bill]:
    """For one image that is correct when clean: the least, the most, and the expected cost."""
    check, stand = Bill(1, 0, tried.forward_s), tried.survivors[number]
    low = high = likely = Bill()
    for place, (stage, planned) in enumerate(zip(trial.stages, stages, strict=True)):
        each_s = tried.pass_s(number, place, planned.most)
        high = high.plus(_priced(planned.most, each_s)).plus(check)
        meant = _priced(planned.most, each_s)
        if place > 0:
            share = stand * (tried.suspects[number] if stage.suspects else stage.near or 1.0)
            likely = likely.plus(meant, share).plus(check, share)
            continue
        low = low.plus(_priced(planned.least, each_s)).plus(check)
        early = _priced(Cost(*tried.early[number]), each_s) if planned.rounds else meant  # type: ignore[arg-type]
        if len(planned.rounds) > 1:
            shares = zip(planned.rounds, tried.rounds[number], strict=True)
            meant = Bill()
            for (_, cost), share in shares:
                meant = meant.plus(_priced(cost, each_s), share)
        likely = likely.plus(meant, stand).plus(early, 1 - stand).plus(check)
    return low, high, likely


def _priced(cost: Cost, each_s: float) -> Bill:
    return Bill(cost.forwards, cost.backwards, cost.forwards * each_s)
