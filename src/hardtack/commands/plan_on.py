"""`hardtack plan … --on`: wall time and GPU-hours of a plan on the workers of an executor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from hardtack.base.cost import duration
from hardtack.engine.crew import Crew
from hardtack.engine.executors.slurm import waves
from hardtack.engine.pieces import Span, missing_spans
from hardtack.engine.schedule import Schedule
from hardtack.engine.simulate import Fleet, simulate
from hardtack.evaluation.evaluation_plan import Plan, Plans
from hardtack.studies.plan import StudyPlan, rate_range
from hardtack.training.plan import TrainingPlan

AnyPlan = Plans | TrainingPlan | StudyPlan


@dataclass(frozen=True)
class Estimate:
    """What a job takes: from the beginning to the end, of all workers in pieces, and of the longest Slurm task."""

    wall_s: float = 0.0
    busy_s: float = 0.0
    pieces: int = 0
    tasks: int = 0
    longest_task_s: float = 0.0

    def then(self, other: Estimate) -> Estimate:
        """One job after the other."""
        return Estimate(
            self.wall_s + other.wall_s, self.busy_s + other.busy_s, self.pieces + other.pieces,
            self.tasks + other.tasks, max(self.longest_task_s, other.longest_task_s),
        )  # fmt: skip


@dataclass(frozen=True)
class PlanOn:
    """A plan, and what it takes on the workers of an executor. `most`: if no attack breaks an image."""

    plan: AnyPlan
    crew: Crew
    expected: Estimate
    most: Estimate
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([str(self.plan), "", *self._lines()])

    @property
    def hours(self) -> float:
        """GPU-hours, or CPU-hours where workers have no GPU, from the first worker's start to the last one's end."""
        return self.held_s(self.expected) * (self.crew.gpus or self.crew.cores) / 3600

    def held_s(self, estimate: Estimate) -> float:
        """Seconds of all workers; a Slurm task ends by itself, other workers are kept to the end."""
        if self.crew.slurm is not None and not isinstance(self.plan, TrainingPlan):
            return estimate.busy_s
        return estimate.wall_s * self._places

    @property
    def _places(self) -> float:
        """Workers, or machines of Slurm that each have several processes of a training."""
        if self.crew.slurm is not None and isinstance(self.plan, TrainingPlan):
            return self.crew.slurm.nodes
        return min(self.crew.workers, max(1, self.expected.pieces)) if self.expected.pieces else self.crew.workers

    def _lines(self) -> list[str]:
        crew, unit = self.crew, "GPU" if self.crew.gpus else "CPU"
        each = f"{crew.gpus:.3g} GPU" if crew.gpus else f"{crew.cores:.3g} CPU core{'s' * (crew.cores != 1)}"
        who = f"{self.expected.tasks} tasks" if crew.slurm is not None else f"{crew.workers} workers"
        lines = [f"on {crew.name}: {who} with {each} each" + (f"; {crew.room}" if crew.room else "")]
        if crew.slurm is not None and isinstance(self.plan, TrainingPlan):
            lines[0] = f"on slurm: one job of {crew.slurm.nodes} nodes with {each} each, {crew.workers} processes"
        wall = f"  expected wall time {duration(self.expected.wall_s)}"
        if self.most.wall_s > self.expected.wall_s:
            wall += f", at most {duration(self.most.wall_s)} if no attack breaks an image"
        lines.append(f"{wall}; {duration(crew.startup_s)} of it for starting a worker")
        held, busy = self.hours, self.expected.busy_s * (crew.gpus or crew.cores) / 3600
        computing = f", {busy / held:.0%} of them computing" if crew.slurm is None and held else ""
        lines.append(f"  {unit}-hours: {held:.2g}{computing}")
        if self.expected.pieces:
            lines[-1] += f", in {self.expected.pieces} pieces"
        return [*lines, *self._slurm_lines(), *(f"  {note}" for note in self.notes)]

    def _slurm_lines(self) -> list[str]:
        chosen = self.crew.slurm
        if chosen is None:
            return []
        tasks, limit_s = max(1, self.expected.tasks), chosen.hours * 3600
        asked = tasks * chosen.nodes * chosen.hours * (self.crew.gpus or self.crew.cores)
        unit = "GPU" if self.crew.gpus else "CPU"
        lines = [
            f"  asked for: {tasks} × slurm.hours={chosen.hours:g}, {asked:.3g} {unit}-hours; the time in the queue is "
            "not included"
        ]
        for name, estimate in (("is expected to take", self.expected), ("may take up to", self.most)):
            if estimate.longest_task_s > limit_s:
                need = -(-estimate.longest_task_s // 3600)
                lines.append(
                    f"  warning: a task {name} {duration(estimate.longest_task_s)}, longer than slurm.hours="
                    f"{chosen.hours:g}; it would be stopped and submitted again (slurm.retries={chosen.retries}): "
                    + ("set" if isinstance(self.plan, StudyPlan | TrainingPlan) else "use more workers or set")
                    + f" slurm.hours={need:.0f}"
                )
                break
        return lines


@contextlib.contextmanager
def threads_of(crew: Crew) -> Iterator[None]:
    """Calibrate with the CPU threads that a worker has."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, crew.threads or before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_crew(plan: AnyPlan, crew: Crew) -> PlanOn:
    """What the plan takes on these workers, by a simulation of the schedule with the plan's own pieces."""
    if isinstance(plan, TrainingPlan):
        return _training(plan, crew)
    if isinstance(plan, StudyPlan):
        return _study(plan, crew)
    expected = most = Estimate()
    for part in plan.parts:
        if isinstance(part, Plan):
            first = expected.pieces == 0  # workers are kept between the suites of one command
            expected = expected.then(_evaluation(part, part.expected.seconds, crew, starts=first)).then(_beside(part))
            most = most.then(_evaluation(part, part.most.seconds, crew, starts=first)).then(_beside(part))
    device = next((part.tried.device for part in plan.parts if isinstance(part, Plan)), "")
    return PlanOn(plan, crew, expected, most, _notes(crew, device))


def _notes(crew: Crew, device: str) -> tuple[str, ...]:
    notes = []
    if crew.gpus and device == "cpu":
        notes.append("times were measured on this machine's CPU; on GPUs it is faster: plan on a machine with one")
    elif not crew.gpus and device not in ("cpu", ""):
        notes.append(f"times were measured on {device}; the workers have no GPU and are slower")
    if crew.sharing > 1:
        what = "GPU" if crew.gpus else "core"
        notes.append(f"{crew.sharing:.2g} workers share a {what}, and are assumed to share its speed")
    return tuple(notes)


def _beside(plan: Plan) -> Estimate:
    """First checks, audit and results, while other workers wait."""
    seconds = plan.once_s + plan.audit_s + plan.rehearsed.after_s
    return Estimate(seconds, seconds, longest_task_s=seconds)


def _evaluation(plan: Plan, seconds: float, crew: Crew, *, starts: bool) -> Estimate:
    share = -(-plan.images // (crew.workers * crew.pieces_per_worker))
    spans = missing_spans([], plan.images, max(1, plan.piece_rows(max(1, share))))
    image_s = seconds / max(1, plan.images) * crew.sharing

    def piece_s(span: Span) -> float:
        return span.rows * image_s

    if crew.slurm is not None:
        count = min(crew.workers, len(spans))
        return _tasks([spans[number::count] for number in range(count)], piece_s, crew)
    return _pieces(Schedule(spans), spans, piece_s, crew, starts=starts)


def _study(plan: StudyPlan, crew: Crew) -> PlanOn:
    rates = [run.rate if crew.gpus else plan.here for run in plan.runs]
    work = [run.training + run.evaluation for run in plan.runs]
    seconds = [part / rate * crew.sharing for part, rate in zip(work, rates, strict=True)]
    numbers = {run.digest: number for number, run in enumerate(plan.runs)}
    needs = [tuple(numbers[need] for need in run.needs) for run in plan.runs]
    chain = [1.0] * len(seconds)  # as `studies.unit_order` counts: the first of long chains first
    for number in reversed(range(len(seconds))):
        for need in needs[number]:
            chain[need] = max(chain[need], 1 + chain[number])
    spans = [Span(number, number + 1) for number in range(len(seconds))]

    def unit_s(span: Span) -> float:
        return seconds[span.start]

    def needs_of(span: Span) -> Sequence[int]:
        return needs[span.start]

    if crew.slurm is not None:
        estimate = Estimate()
        for wave in waves(needs_of, spans):
            estimate = estimate.then(_tasks([[span] for span in wave], unit_s, crew))
    else:
        schedule = Schedule(spans, expected=lambda span: chain[span.start], needs=needs_of)
        estimate = _pieces(schedule, spans, unit_s, crew, starts=True)
    speed = "of one H200 for each GPU" if crew.gpus else "measured on this machine"
    notes = (f"at {rate_range(rates)} multiply-adds/s, {speed}; no attack breaks an image", *_notes(crew, ""))
    return PlanOn(plan, crew, estimate, estimate, notes)


def _training(plan: TrainingPlan, crew: Crew) -> PlanOn:
    """The batch is split between the processes; what they send each other takes more."""
    wall_s = plan.total_s * crew.sharing / crew.workers + crew.startup_s
    estimate = Estimate(wall_s, plan.total_s * crew.sharing, tasks=1, longest_task_s=wall_s)
    notes = [f"a batch of {plan.batch_size} is split between {crew.workers} processes; communication is not included"]
    notes = notes if crew.workers > 1 else []
    return PlanOn(plan, crew, estimate, estimate, (*notes, *_notes(crew, "cpu" if not plan.on_gpu else plan.device)))


def _pieces(
    schedule: Schedule, spans: Sequence[Span], seconds: Callable[[Span], float], crew: Crew, *, starts: bool
) -> Estimate:
    """Pieces that are handed out one by one to workers that stay."""
    fleet = Fleet(workers=max(1, min(crew.workers, len(spans))), startup_s=crew.startup_s if starts else 0.0)
    found = simulate(schedule, seconds, fleet)
    return Estimate(found.wall_s, found.busy_s, pieces=len(spans))


def _tasks(parts: Sequence[Sequence[Span]], seconds: Callable[[Span], float], crew: Crew) -> Estimate:
    """Tasks of a Slurm array: each starts by itself, and at most `slurm.at_once` run at the same time."""
    assert crew.slurm is not None
    each = [crew.startup_s + sum(map(seconds, part)) for part in parts]
    spans = [Span(number, number + 1) for number in range(len(parts))]
    fleet = Fleet(workers=max(1, min(crew.slurm.at_once or len(parts), len(parts))))
    found = simulate(Schedule(spans, expected=lambda span: 0.0), lambda span: each[span.start], fleet)
    pieces = sum(map(len, parts))
    return Estimate(found.wall_s, found.busy_s, pieces, len(parts), max(each, default=0.0))
