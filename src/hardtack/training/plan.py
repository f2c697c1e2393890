"""What a training run will cost (`hardtack plan RECIPE`).

The numbers of steps and images follow from the recipe. A few steps are run to count how often an image passes the model
and to measure how long a step takes, with data loading and attack. They are steps of the last epoch, when attacks have
their full radius and everything that starts late has started; for runs with a warm-up the plan is an upper bound.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from hardtack.attacks.pool.search import Cost
from hardtack.base.cost import Memory, device_name, duration, text_table, timed
from hardtack.base.errors import UserError
from hardtack.data import Batch, load_data, load_training
from hardtack.models.passes import count_passes
from hardtack.training.recipe import Recipe
from hardtack.training.start import fresh_model
from hardtack.training.trainer import Trainer, Validate

BUDGET_S = 6.0
WARM_STEPS = 5  # after which compiled steps are recorded and replayed
STEPS = 20
VALIDATION_IMAGES = 64


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The cost of a training run. Passes are those of one image in one step."""

    title: str
    parameters: int
    trained: int
    images: int  # in an epoch
    shape: tuple[int, ...]
    classes: int
    epochs: int
    steps: int
    batch_size: int
    accumulate: int
    attack: Cost
    update: Cost
    step_s: float
    tried_steps: int
    memory_mb: float
    device: str
    precision: str
    validations: int
    validation_images: int
    one_validation_s: float
    disk_mb: float
    on_gpu: bool

    @property
    def training_s(self) -> float:
        return self.steps * self.step_s

    @property
    def validation_s(self) -> float:
        return self.validations * self.one_validation_s

    @property
    def total_s(self) -> float:
        return self.training_s + self.validation_s

    def __str__(self) -> str:
        size, split = "×".join(map(str, self.shape)), f" in {self.accumulate} parts" if self.accumulate > 1 else ""
        millions = f"{self.parameters / 1e6:.2f} M parameters"
        millions += f", {self.trained / 1e6:.2f} M trained" if self.trained < self.parameters else ""
        lines = [
            f"plan: {self.title} ({millions}), {self.images:,} images {size}, {self.classes} classes",
            f"  {self.device}, {self.precision}, batch {self.batch_size}{split}: {self.tried_steps} steps measured, "
            f"{self.step_s:.3g} s each, {self.batch_size / self.step_s:,.0f} images/s, "
            f"about {self.memory_mb:,.0f} MB peak memory",
        ]
        passes = [("passes of an image per step", "forwards", "backwards")]
        passes += [(name, f"{cost.forwards:,}", f"{cost.backwards:,}") for name, cost in self._costs()]
        seen = f"{self.steps * self.batch_size:,}"
        bill = [("total", "steps", "images", "time")]
        bill.append((f"{self.epochs} epochs", f"{self.steps:,}", seen, duration(self.training_s)))
        if self.validations:
            each = f"{self.validations} × {self.validation_images:,}"
            bill.append(("validation", "", each, duration(self.validation_s)))
            bill.append(("sum", "", "", duration(self.total_s)))
        hours = [f"  GPU-hours: {self.total_s / 3600:,.2g}"] if self.on_gpu else []
        return "\n".join(
            [*lines, "", *text_table(passes), "", *text_table(bill), f"  disk: about {self.disk_mb:,.1f} MB", *hours]
        )

    def _costs(self) -> list[tuple[str, Cost]]:
        return [("attack", self.attack), ("update", self.update), ("sum", self.attack.plus(self.update))]


def plan_training(recipe: Recipe, *, make_validator: Callable[[Recipe], Validate | None]) -> TrainingPlan:
    """What training this recipe will cost. `make_validator` gives the function that measures an epoch's model."""
    data = load_training(recipe.data, recipe.augment)
    train = dataclasses.replace(recipe.train, patience=None)
    job = Trainer(dataclasses.replace(recipe, train=train), fresh_model(recipe, data), data, quiet=True)
    job.progress.done = (recipe.train.epochs - 1) * job.steps_per_epoch
    with torch.random.fork_rng([job.device.index] if job.device.type == "cuda" else []):
        attack, update, step_s, tried, memory_mb = _try_out(job)
    validations, images_validated, one_validation_s = _validation(recipe, job.model, make_validator)
    weights = sum(parameter.numel() for parameter in job.model.parameters())
    trained = sum(parameter.numel() for parameter in job.parameters)
    moments = {"adamw": 2, "sgd": 1}[recipe.optimiser.name]
    floats = 3 * weights + moments * trained + (weights if job.average is not None else 0)  # best, last, state
    return TrainingPlan(
        title=f"{recipe.name}: {recipe.model.name}", parameters=weights, trained=trained, images=len(data),
        shape=tuple(data.image_shape), classes=data.num_classes, epochs=recipe.train.epochs,
        steps=recipe.train.epochs * job.steps_per_epoch, batch_size=recipe.train.batch_size,
        accumulate=recipe.train.accumulate, attack=attack, update=update, step_s=step_s, tried_steps=tried,
        memory_mb=memory_mb, device=device_name(recipe.runtime), precision=recipe.runtime.precision,
        validations=validations, validation_images=images_validated, one_validation_s=one_validation_s,
        disk_mb=floats * 4 / 2**20, on_gpu=job.device.type == "cuda",
    )  # fmt: skip


def _try_out(job: Trainer) -> tuple[Cost, Cost, float, int, float]:
    """Passes of an image in a step, seconds of a step, the number of steps timed, and memory."""
    memory = Memory(job.device)
    try:
        few = first_images(next(all_batches(job)), 2 * job.config.accumulate)
        with count_passes(job.model) as passes:
            small_s = timed(lambda: job.step(few), 1) / len(few.x)
        attack, update = (Cost(*(count // len(few.x) for count in pair)) for pair in passes)
        width, share = job.config.batch_size, job.config.accumulate
        if job.device.type != "cuda":  # a CPU may take only a part of a large batch in the time there is
            affordable = int(BUDGET_S / 4 / small_s) // share * share
            width = min(width, max(affordable, len(few.x)))
        job.accelerate()
        stream = all_batches(job)
        end = time.monotonic() + BUDGET_S
        warm = WARM_STEPS if job.runtime.compiles or job.runtime.captures else 1
        for _ in range(warm):
            job.step(first_images(next(stream), width))
        times: list[float] = []
        while len(times) < STEPS and (not times or time.monotonic() < end):
            times.append(timed(lambda: job.step(first_images(next(stream), width)), 1))
    except torch.OutOfMemoryError:
        size = job.config.batch_size // job.config.accumulate
        raise UserError(
            f"a batch of {size} images does not fit; raise train.accumulate or set train.checkpoint_blocks=true"
        ) from None
    factor = job.config.batch_size / width
    return attack, update, sorted(times)[len(times) // 2] * factor, len(times), memory.peak_mb(factor)


def all_batches(job: Trainer) -> Iterator[Batch]:
    """The batches of one epoch after the other, without end."""
    return itertools.chain.from_iterable(job.batches(epoch) for epoch in itertools.count())


def first_images(batch: Batch, count: int) -> Batch:
    """The first images of a batch."""
    return batch if count >= len(batch.x) else Batch(*(part[:count] for part in batch))


def _validation(
    recipe: Recipe, model: nn.Module, make_validator: Callable[[Recipe], Validate | None]
) -> tuple[int, int, float]:
    """The number of validations, the images of each, and its seconds."""
    if recipe.data.validation == 0:
        return 0, 0, 0.0
    images = min(len(load_data(recipe.data, "validation")), recipe.validation.limit or 2**62)
    few = min(images, VALIDATION_IMAGES)
    short = dataclasses.replace(recipe, validation=dataclasses.replace(recipe.validation, limit=few))
    validate = make_validator(short)
    assert validate is not None
    validate(model)  # the first call sets things up
    seconds = timed(lambda: validate(model), 1) / few
    return -(-recipe.train.epochs // recipe.validation.every), images, seconds * images
