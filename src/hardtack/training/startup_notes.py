"""What a run says before its first step: where it begins, and what its settings will not do.

A configuration says in `remarks` which of its settings have no effect or an odd one, in sentences whose subject is the
run. What contradicts itself outright is refused where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.training.recipe import Recipe

if TYPE_CHECKING:
    from hardtack.training.trainer import Trainer


def check_classes(model: nn.Module, data: Dataset) -> None:
    """A label beyond the model's last class would be an index out of range in the first loss."""
    classes = getattr(model, "num_classes", None)
    if isinstance(classes, int) and classes < data.num_classes:
        raise UserError(
            f"the model tells {classes} classes apart and {data.name} has {data.num_classes}; "
            "leave model.num_classes out, or set it to as many"
        )


def opening(job: Trainer) -> Iterator[str]:
    """The lines, each without the run's name, which stands before it."""
    total = job.config.epochs * job.steps_per_epoch
    if job.done >= total or job.stopped:
        yield "has been trained to its end already"
    elif job.done:
        yield f"goes on at step {job.done} of {total}"
    else:
        yield from remarks(job.recipe)
        yield from _climb(job)
        yield from _more_classes(job.model, job.data)
        yield from _start(job.recipe, getattr(job.model, "fitted", None))


def _climb(job: Trainer) -> Iterator[str]:
    """Refuses a model that hides its images from an objective that attacks them; says it where that may pass."""
    mode = getattr(job.objective, "attacked_in", None)
    if mode is None:
        return
    # a split one would be compiled for these few images
    model = job.model if job.unsplit is None else job.unsplit
    x = torch.full((2, *job.data.image_shape), 0.5, device=job.device, requires_grad=True)
    with preserve_state(model, mode=mode), job.runtime.arithmetic():
        logits = model(x + torch.linspace(-0.5, 0.5, x.numel(), device=job.device).view_as(x))
        climbed = logits.float().square().sum()
        gradient = torch.autograd.grad(climbed, x, allow_unused=True)[0] if climbed.requires_grad else None
    if gradient is None:
        raise UserError(
            "the model passes no gradient to its input (no_grad, or detach), so there is none for the training "
            "attack to follow: use objective=standard, or let it pass"
        )
    if not bool(gradient.any()):
        yield "begins without a gradient at the images: the head starts at zero, or else no attack will move them"


def remarks(recipe: Recipe) -> Iterator[str]:
    """Settings of the recipe that do not do what they seem to."""
    epochs = recipe.train.epochs
    yield from recipe.optimiser.remarks()
    yield from recipe.schedule.remarks(lr=recipe.optimiser.lr, epochs=epochs)
    yield from recipe.sharpness.remarks(epochs=epochs)
    yield from recipe.penalty.remarks()
    if hasattr(recipe.objective, "remarks"):
        yield from recipe.objective.remarks(epochs=epochs)


def _more_classes(model: nn.Module, data: Dataset) -> Iterator[str]:
    classes = getattr(model, "num_classes", None)
    if isinstance(classes, int) and classes > data.num_classes:
        yield f"has outputs that no image is labelled with: {classes} classes, of which the data has {data.num_classes}"


def _start(recipe: Recipe, fitted: Any) -> Iterator[str]:
    if fitted is not None:
        yield f"starts from adapted weights: {fitted.summary()}"
    elif recipe.model.weights is not None:
        yield f"starts from the weights in {recipe.model.weights}"
    elif recipe.model.pretrained:
        yield f"starts from the published weights of {recipe.model.name}"
