"""The rehearsal of a training run: a few steps of each of its phases, timed, for `hardtack plan`.

They run in the order of the run and with its real batch, so that what is set up once (kernels, CUDA graphs, compiled
blocks) is set up here too, and its time is kept apart from that of the steps after it. On a CPU a step that would take
minutes is tried with a part of the batch, at two sizes, and the rest is extrapolated.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hardtack.base.instruments import Instruments, Moment, idle_s
from hardtack.data import Batch
from hardtack.training.later_compilation import LaterCompilation, worth_s
from hardtack.training.loss_gradient import RecordedLossGradient
from hardtack.training.phases import Phase
from hardtack.training.trainer import Trainer

BUDGET_S = 6.0  # of steady steps, all phases together
PATIENCE_S = 60.0  # for whole batches on a CPU, all phases together
FIRST_STEPS = 8  # on a GPU, within which everything is recorded
WINDOWS, WINDOW_S = 12, 0.1  # steps are timed in groups that take at least so long
_SETTLED = 1.25  # first steps that take more than this many steady ones are setting something up


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Steps of a phase: `setup_s` once, beyond `step_s` for each; `spread` between repeated measurements."""

    phase: Phase
    step_s: float
    setup_s: float
    tried: int
    spread: float = 0.0

    @property
    def seconds(self) -> float:
        return self.setup_s + self.phase.steps * self.step_s


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What was found out; `width`: images of a step that was tried, less than a batch where that would take minutes."""

    timed: tuple[Timed, ...]
    width: int
    epoch_s: float  # until the first batch of an epoch is there
    log_s: float
    first_s: float = 0.0  # once, before the steps that were timed
    compile_s: float = 0.0
    kernels_s: float = 0.0  # of the first steps, for kernels that are on disk afterwards
    memory_mb: float = 0.0
    notes: tuple[str, ...] = ()


class Rehearsal:
    """Steps of a trainer whose run has not begun."""

    def __init__(self, job: Trainer, instruments: Instruments) -> None:
        self.job, self.instruments = job, instruments
        self.on_gpu = job.device.type == "cuda"
        self.notes: list[str] = []
        self.compile_s = self.log_s = self.epoch_s = self.first_s = 0.0
        self._stream: Iterator[Batch] = iter(())
        self._tried = 0

    def run(self, phases: Sequence[Phase]) -> Rehearsed:
        """Try every phase."""
        batch, share = self.job.config.batch_size, self.job.config.accumulate
        self._open()
        affordable = batch if self.on_gpu else self._affordable(phases)
        self.job.accelerate()
        if self.on_gpu or affordable >= batch:
            timed = self._all(phases, batch)
            return self._rehearsed(timed, batch, self.instruments.peak_mb(self.job.device))
        small = max(2 * share, affordable // 4 // share * share)  # no fewer than were tried first
        large = 2 * small
        few = self._all(phases, small)
        few_mb = self.instruments.peak_mb(self.job.device)
        more = self._all(phases, large)
        more_mb = self.instruments.peak_mb(self.job.device)
        reach = (batch - large) / max(large - small, 1)
        timed = [_extended(low, high, reach) for low, high in zip(few, more, strict=True)]
        self.notes.append(f"steps of {small} and {large} images were tried, and steps of {batch} are extrapolated")
        return self._rehearsed(timed, large, more_mb + max(0.0, more_mb - few_mb) * reach)

    def _affordable(self, phases: Sequence[Phase]) -> int:
        """How many images of a batch a step can have, by the time of steps with a few images."""
        few = 2 * self.job.config.accumulate
        self.job.progress.done = phases[-1].at
        first_s, again_s = (self._steps(1, few) for _ in range(2))
        self.first_s = max(0.0, first_s - again_s)
        return int(PATIENCE_S / (2 * len(phases) * max(again_s / few, 1e-9)))

    def _rehearsed(self, timed: list[Timed], width: int, memory_mb: float) -> Rehearsed:
        return Rehearsed(
            timed=tuple(timed), width=width, epoch_s=self.epoch_s, log_s=self.log_s, first_s=self.first_s,
            compile_s=self.compile_s, memory_mb=memory_mb, notes=tuple(self.notes),
        )  # fmt: skip

    def _all(self, phases: Sequence[Phase], width: int) -> list[Timed]:
        total, timed = sum(phase.steps for phase in phases), []
        for number, phase in enumerate(phases):
            self.job.progress.done = phase.at
            found = self._phase(phase, width, BUDGET_S / len(phases))
            if number == 0 and self._compiles(found.step_s, total):
                self._compile(total)
                again = self._phase(phase, width, BUDGET_S / len(phases))
                found = Timed(
                    phase=phase, step_s=again.step_s, setup_s=found.setup_s, tried=again.tried, spread=again.spread
                )
            timed.append(found)
        self.log_s = self._seconds(self._log)
        return timed

    # ------------------------------------------------------------ one phase

    def _phase(self, phase: Phase, width: int, budget_s: float) -> Timed:
        self._tried = 0
        first = [self._steps(1, width) for _ in range(FIRST_STEPS if self.on_gpu else 2)]
        each, size = [first[-1]], 1 if not self.on_gpu else max(1, round(WINDOW_S / max(first[-1], 1e-6)))
        spent = 0.0
        while len(each) <= WINDOWS and spent + size * each[-1] < budget_s and self._tried < phase.steps:
            seconds = self._steps(size, width)
            spent += seconds
            each.append(seconds / size)
        step_s, spread = steady(each[1:] or each)
        return Timed(
            phase=phase, step_s=step_s, setup_s=setup(first, step_s), tried=self._tried, spread=spread,
        )  # fmt: skip

    def _steps(self, count: int, width: int) -> float:
        began = self._now()
        for _ in range(count):
            self.job.window.add(self.job.step(first_images(next(self._stream), width)))
            self.job.progress.done -= 1  # the next step is one of the same phase
        self._tried += count
        return self._since(began)

    # ------------------------------------------------------------ compilation in the middle of a long run

    def _compiles(self, step_s: float, steps: int) -> bool:
        job = self.job
        recorded = isinstance(job.gradient, RecordedLossGradient) and job.runtime.compile is None
        return recorded and steps * step_s >= worth_s(job.objective.model)

    def _compile(self, steps: int) -> None:
        """As the run does it; what it takes more than ordinary steps is the price of compiling."""
        job = self.job
        later = LaterCompilation(job.objective, job.runtime, job.config, job.gradient, note=self.notes.append)
        began, taken = self._now(), 0
        while not later.done:
            batch = next(self._stream)
            job.step(batch)
            job.progress.done -= 1
            job.gradient = later.after_step(job.gradient, steps, batch)
            taken += 1
        passed = self._since(began)
        self.compile_s = max(0.0, passed - taken * self._steps(1, job.config.batch_size))

    # ------------------------------------------------------------ data and log

    def _open(self) -> None:
        """Start an epoch, which may start processes that read the data."""
        self._stream = all_batches(self.job)
        began = self._now()
        batch = next(self._stream)
        self.epoch_s = self._since(began)
        self._stream = itertools.chain([batch], self._stream)

    def _log(self) -> None:
        self.job.finite.check()
        self.job.window.flush()

    def _seconds(self, work: Callable[[], object]) -> float:
        began = self._now()
        work()
        return self._since(began)

    def _now(self) -> Moment:
        return self.instruments.finished(self.job.device)

    def _since(self, began: Moment) -> float:
        return idle_s(self._now().since(began), on_gpu=self.on_gpu)


def steady(each: Sequence[float]) -> tuple[float, float]:
    """The seconds of a steady step (the median), and the distance of the quartiles as a share of it."""
    median = statistics.median(each)
    if len(each) < 4:
        return median, (max(each) - min(each)) / max(median, 1e-12)
    low, _, high = statistics.quantiles(each, n=4)
    return median, (high - low) / max(median, 1e-12)


def setup(first: Sequence[float], step_s: float) -> float:
    """What the first steps took beyond steady ones, up to the last that took clearly longer."""
    slow = [number for number, seconds in enumerate(first) if seconds > _SETTLED * step_s]
    return sum(seconds - step_s for seconds in first[: slow[-1] + 1]) if slow else 0.0


def _extended(low: Timed, high: Timed, reach: float) -> Timed:
    """The line through two sizes of a step, continued `reach` times the distance between them."""
    return Timed(
        phase=high.phase, step_s=high.step_s + max(0.0, high.step_s - low.step_s) * reach,
        setup_s=low.setup_s + high.setup_s, tried=low.tried + high.tried, spread=max(low.spread, high.spread),
    )  # fmt: skip


def all_batches(job: Trainer) -> Iterator[Batch]:
    """The batches of one epoch after the other, without end."""
    return itertools.chain.from_iterable(job.batches(epoch) for epoch in itertools.count())


def first_images(batch: Batch, count: int) -> Batch:
    """The first images of a batch."""
    return batch if count >= len(batch.x) else Batch(*(part[:count] for part in batch))
