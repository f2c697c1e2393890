"""What a training run will cost (`hardtack plan RECIPE`).

The numbers of steps and images follow from the recipe, the passes of an image from its objective. How long steps take,
and how much memory, is measured on a few steps of every phase of the run (rehearsal.py); the same holds for validation
and for saving. What is done once is counted once: starting, first steps, compilation.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from hardtack.attacks.pool.search import Cost
from hardtack.base.allocator import keep_freed_memory
from hardtack.base.cost import device_name, duration, text_table
from hardtack.base.errors import UserError
from hardtack.base.instruments import Instruments, Load, Moment, busy_note, idle_s, slower_now
from hardtack.base.new_kernels import new_kernels
from hardtack.data import Dataset, load_training
from hardtack.training.averaging import has_statistics
from hardtack.training.checkpoint import Progress
from hardtack.training.passes import passes_per_image
from hardtack.training.phases import Phase, phases
from hardtack.training.recipe import Recipe
from hardtack.training.rehearsal import Rehearsal, Rehearsed, Timed
from hardtack.training.start import fresh_model
from hardtack.training.startup_notes import startup_notes
from hardtack.training.trainer import STATISTICS_STEPS, Trainer

VALIDATION_IMAGES, VALIDATION_S = 64, 8.0  # tried first, and seconds that all of them may take
WITHSTAND = 0.6  # of the validation attack's passes: what a model in training takes, on average


class Rehearsable(Protocol):
    """A validator that can be timed: it chooses images on which it takes the least and the most time."""

    @property
    def images(self) -> int: ...

    @property
    def attacks(self) -> bool: ...

    def labels(self, model: nn.Module, count: int, *, withstand: bool) -> Dataset: ...

    def rehearse(self, model: nn.Module, data: Dataset) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ValidationPlan:
    """Validations of a run: how many, of how many images, and the seconds of one where no image, or every image,
    takes all steps of the attack. `setup_s`: once."""

    count: int = 0
    images: int = 0
    least_s: float = 0.0
    most_s: float = 0.0
    setup_s: float = 0.0
    kernels_s: float = 0.0  # that the plan compiled; they are not in setup_s

    @property
    def each_s(self) -> float:
        """What is expected: a part of the images is misclassified from the start, or soon."""
        return self.least_s + WITHSTAND * (self.most_s - self.least_s)

    @property
    def seconds(self) -> float:
        return self.setup_s + self.count * self.each_s


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The cost of a training run. Passes are those of one image in one step, for each phase of the run."""

    title: str
    parameters: int
    trained: int
    images: int  # in an epoch
    shape: tuple[int, ...]
    classes: int
    epochs: int
    batch_size: int
    accumulate: int
    passes: tuple[tuple[Cost, Cost], ...]  # attack and update, by phase
    attacks: bool  # whether the objective attacks images
    rehearsed: Rehearsed
    device: str
    precision: str
    start_s: float
    validation: ValidationPlan
    save_s: float  # one of the states and weights that are written
    saves: int
    refresh_s: float  # batch-norm statistics of averaged weights, all together
    log_s: float  # all together
    memory_mb: float
    disk_mb: float
    on_gpu: bool
    load: Load = dataclasses.field(default_factory=Load)
    plan_s: float = 0.0  # what planning took

    @property
    def steps(self) -> int:
        return sum(timed.phase.steps for timed in self.rehearsed.timed)

    @property
    def attack(self) -> Cost:
        """Of the phase with the most passes."""
        return max((attack for attack, _ in self.passes), key=sum)

    @property
    def update(self) -> Cost:
        return max((update for _, update in self.passes), key=sum)

    @property
    def step_s(self) -> float:
        """Seconds of a step, on average."""
        return self.training_s / max(self.steps, 1)

    @property
    def training_s(self) -> float:
        """All steps, without what is set up before the first ones."""
        return sum(timed.phase.steps * timed.step_s for timed in self.rehearsed.timed)

    @property
    def setup_s(self) -> float:
        """What first steps take beyond steady ones; kernels that the plan compiled are on disk by then."""
        first_s = sum(timed.setup_s for timed in self.rehearsed.timed) + self.rehearsed.first_s
        return max(0.0, first_s - self.rehearsed.kernels_s)

    @property
    def validation_s(self) -> float:
        return self.validation.seconds

    @property
    def other_s(self) -> float:
        """Beginnings of epochs, logs, saving."""
        return self.epochs * self.rehearsed.epoch_s + self.log_s + self.saves * self.save_s + self.refresh_s

    @property
    def total_s(self) -> float:
        parts = self.training_s + self.setup_s + self.rehearsed.compile_s + self.validation_s + self.other_s
        return self.start_s + parts

    @property
    def range_s(self) -> tuple[float, float]:
        """The least and the most, by what the model will withstand in its validations."""
        checked, other_s = self.validation, self.total_s - self.validation.seconds
        low, high = (checked.setup_s + checked.count * each for each in (checked.least_s, checked.most_s))
        return other_s + low, other_s + high

    @property
    def tried_steps(self) -> int:
        return sum(timed.tried for timed in self.rehearsed.timed)

    @property
    def spread(self) -> float:
        return max(timed.spread for timed in self.rehearsed.timed)

    def __str__(self) -> str:
        return "\n".join(
            [*self._head(), "", *self._passes(), "", *text_table(self._bill()), *self._hours(), *self._notes()]
        )

    def _head(self) -> list[str]:
        size, split = "×".join(map(str, self.shape)), f" in {self.accumulate} parts" if self.accumulate > 1 else ""
        millions = f"{self.parameters / 1e6:.2f} M parameters"
        millions += f", {self.trained / 1e6:.2f} M trained" if self.trained < self.parameters else ""
        of = "of torch's tensors on the GPU" if self.on_gpu else "of the process, with Python and torch"
        return [
            f"plan: {self.title} ({millions}), {self.images:,} images {size}, {self.classes} classes",
            f"  {self.device}, {self.precision}, batch {self.batch_size}{split}: {self.tried_steps} steps tried, "
            f"{self.step_s:.3g} s each, {self.batch_size / self.step_s:,.0f} images/s",
            f"  memory: {self.memory_mb:,.0f} MB, the peak {of}",
        ]

    def _passes(self) -> list[str]:
        rows = [("passes of an image per step", "forwards", "backwards")]
        several = len(self.passes) > 1
        for timed, (attack, update) in zip(self.rehearsed.timed, self.passes, strict=True):
            when = f", {timed.phase.words}" if several else ""
            shared = self.attacks and not sum(self.attack)
            parts = [("update, which is the attack too" if shared else "update", update)]
            parts = parts if shared else [("attack", attack), *parts, ("sum", attack.plus(update))]
            rows += [(name + when, f"{cost.forwards:,}", f"{cost.backwards:,}") for name, cost in parts]
        return text_table(rows)

    def _bill(self) -> list[tuple[str, ...]]:
        bill: list[tuple[str, ...]] = [("total", "steps", "images", "time")]
        timed, several = self.rehearsed.timed, len(self.rehearsed.timed) > 1
        bill.append(("start and end: imports, data, model", "", "", duration(self.start_s)))
        if self.setup_s > 0.01:
            bill.append(("first steps, beyond steady ones", "", "", duration(self.setup_s)))
        if self.rehearsed.compile_s:
            bill.append(("compiling blocks", "", "", duration(self.rehearsed.compile_s)))
        for part in timed if several else ():
            steps, seconds = part.phase.steps, part.phase.steps * part.step_s
            bill.append((f"  {part.phase.words}", f"{steps:,}", f"{steps * self.batch_size:,}", duration(seconds)))
        seen = f"{self.steps * self.batch_size:,}"
        bill.append((_count(self.epochs, "epoch"), f"{self.steps:,}", seen, duration(self.training_s)))
        if self.validation.count:
            each = f"{self.validation.count} × {self.validation.images:,}"
            bill.append(("validation", "", each, duration(self.validation_s) + self._range()))
        bill.append(("saving, logs, epochs", "", "", duration(self.other_s)))
        bill.append(("sum", "", "", duration(self.total_s)))
        return bill

    def _range(self) -> str:
        """How much the time of validation depends on what the model will withstand."""
        checked = self.validation
        low, high = (checked.setup_s + checked.count * each for each in (checked.least_s, checked.most_s))
        return f" ({duration(low)} to {duration(high)})" if high > 1.2 * low else ""

    def _hours(self) -> list[str]:
        hours = [f"  GPU-hours: {self.total_s / 3600:,.2g}"] if self.on_gpu else []
        return [f"  disk: about {self.disk_mb:,.1f} MB", *hours]

    def _notes(self) -> list[str]:
        lines = list(self.rehearsed.notes)
        if self._range():
            lines.append("validation takes less while the attack breaks many images, and more once they withstand it")
        if note := busy_note(self.load, self.spread):
            factor = slower_now(self.load)
            now = f"; times are those of an idle machine, and now it takes {factor:.2g} × as long"
            lines.append(note + (now if factor > 1.05 and not self.on_gpu else "; plan again when it is idle"))
        if (kernels_s := self.rehearsed.kernels_s + self.validation.kernels_s) > 0.05:
            lines.append(
                f"kernels were compiled for {duration(kernels_s)}; they are on disk, and the run does not wait"
            )
        lines.append(f"planning took {duration(self.plan_s)}")
        return [f"  {line}" for line in lines]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


# ---------------------------------------------------------------- planning


def plan_training(
    recipe: Recipe,
    *,
    make_validator: Callable[[Recipe], Rehearsable | None],
    instruments: Instruments | None = None,
) -> TrainingPlan:
    """What training this recipe will cost. `make_validator` gives the function that measures an epoch's model."""
    instruments = instruments or Instruments()
    keep_freed_memory()  # as training does
    data = load_training(recipe.data, recipe.augment)
    train = dataclasses.replace(recipe.train, patience=None)
    device = recipe.runtime.torch_device
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng([device] if device.type == "cuda" else []):
        model = fresh_model(recipe, data)
        validator = make_validator(recipe)
        job = Trainer(dataclasses.replace(recipe, train=train), model, data, quiet=True, folder=Path(folder))
        start_s = _idle(instruments.finished(device).since(instruments.began), job) + instruments.end_s(device)
        stretches = phases(job)
        passes = tuple(passes_per_image(recipe, epoch=phase.at / job.steps_per_epoch) for phase in stretches)
        rehearsed, validation, save_s = _rehearse(job, stretches, validator, instruments)
        memory_mb = max(rehearsed.memory_mb, instruments.peak_mb(device))
    weights = sum(parameter.numel() for parameter in job.model.parameters())
    steps_s = sum(timed.phase.steps * timed.step_s for timed in rehearsed.timed)
    return TrainingPlan(
        title=f"{recipe.name}: {recipe.model.name}", parameters=weights,
        trained=sum(parameter.numel() for parameter in job.parameters), images=len(data),
        shape=tuple(data.image_shape), classes=data.num_classes, epochs=recipe.train.epochs,
        batch_size=recipe.train.batch_size, accumulate=recipe.train.accumulate, passes=passes,
        attacks=bool(recipe.objective.threats()), rehearsed=rehearsed, device=device_name(recipe.runtime),
        precision=recipe.runtime.precision, start_s=start_s, validation=validation, save_s=save_s,
        saves=_due(recipe) + int(steps_s / recipe.train.checkpoint_every_s),
        refresh_s=_refresh_s(job, rehearsed.timed[-1]), log_s=rehearsed.log_s * job.total / recipe.train.log_every,
        memory_mb=memory_mb, disk_mb=_disk_mb(job, weights), on_gpu=device.type == "cuda",
        load=instruments.load(device), plan_s=instruments.now().since(instruments.began).wall_s,
    )  # fmt: skip


def _rehearse(
    job: Trainer, stretches: Sequence[Phase], validator: Rehearsable | None, instruments: Instruments
) -> tuple[Rehearsed, ValidationPlan, float]:
    """Steps of every phase, then a validation, then saving: in the order of the run."""
    instruments.begin_memory(job.device)
    began = instruments.finished(job.device)
    try:
        about: dict[str, Any] = {"total": job.total, "model": job.model, "objective": job.objective, "data": job.data}
        list(startup_notes(job.recipe, Progress(), **about))
        noted_s = _idle(instruments.finished(job.device).since(began), job)
        with new_kernels() as kernels:
            rehearsed = Rehearsal(job, instruments).run(stretches)
        first_s = rehearsed.first_s + noted_s
        rehearsed = dataclasses.replace(rehearsed, first_s=first_s, kernels_s=kernels.seconds)
        with new_kernels() as others:
            validation = plan_validation(job, validator, instruments) if validator is not None else ValidationPlan()
        setup_s = max(0.0, validation.setup_s - others.seconds)
        validation = dataclasses.replace(validation, setup_s=setup_s, kernels_s=others.seconds)
    except torch.OutOfMemoryError:
        size = job.config.batch_size // job.config.accumulate
        raise UserError(
            f"a batch of {size} images does not fit; raise train.accumulate or set train.checkpoint_blocks=true"
        ) from None
    began = instruments.finished(job.device)
    job.validation.export("best", job.model, 1, {}, objective=job.objective, average=job.average)
    job.validation.export("last", job.model, 1, {}, objective=job.objective, average=job.average)
    job._save()
    return rehearsed, validation, _idle(instruments.finished(job.device).since(began), job)


def plan_validation(job: Trainer, validator: Rehearsable, instruments: Instruments) -> ValidationPlan:
    """The least and the most that a validation takes: on images that it does not attack, and on ones that withstand."""
    model = job.average.model if job.average is not None else job.model
    images = validator.images
    few = min(images, job.recipe.validation.batch_size if job.device.type == "cuda" else VALIDATION_IMAGES)

    def seconds(count: int, *, withstand: bool) -> float:
        data = validator.labels(model, count, withstand=withstand)
        began = instruments.finished(job.device)
        validator.rehearse(model, data)
        return _idle(instruments.finished(job.device).since(began), job)

    first_s = seconds(few, withstand=True)
    most_s = seconds(few, withstand=True)
    setup_s = max(0.0, first_s - most_s)
    if few < images and most_s * images / few <= VALIDATION_S:
        few, most_s = images, seconds(images, withstand=True)
    least_s = seconds(few, withstand=False) if validator.attacks else most_s
    scale = images / few
    return ValidationPlan(
        count=_due(job.recipe), images=images, least_s=min(least_s, most_s) * scale, most_s=most_s * scale,
        setup_s=setup_s,
    )  # fmt: skip


def _idle(passed: Moment, job: Trainer) -> float:
    return idle_s(passed, on_gpu=job.device.type == "cuda")


def _due(recipe: Recipe) -> int:
    """Epochs after which the run is validated and saved: every so many, and the last one."""
    return -(-recipe.train.epochs // recipe.validation.every)


def _refresh_s(job: Trainer, late: Timed) -> float:
    """Weights averaged over epochs take batch-norm statistics anew at every validation: steps without an update."""
    average, first = job.average, job.config.swa_from
    if average is None or average.copies_statistics or first is None or not has_statistics(job.model):
        return 0.0
    every, epochs = job.recipe.validation.every, job.config.epochs
    times = sum(1 for epoch in range(first, epochs + 1) if epoch % every == 0 or epoch == epochs)
    return times * min(STATISTICS_STEPS, job.steps_per_epoch) * late.step_s


def _disk_mb(job: Trainer, weights: int) -> float:
    """Weights of the best and the last epoch, and the state: weights, moments and the average."""
    trained = sum(parameter.numel() for parameter in job.parameters)
    moments: dict[str, Any] = {"adamw": 2, "sgd": 1}
    floats = 3 * weights + moments[job.recipe.optimiser.name] * trained + (weights if job.average is not None else 0)
    return floats * 4 / 2**20
