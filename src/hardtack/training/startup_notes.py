"""What a run says before its first step: where it starts, and which settings have no effect or an unexpected one.

Every configuration lists such settings in `notes`. Settings that contradict each other are refused where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hardtack.attacks import preserve_state
from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.models.kept import is_given, weights_sha256
from hardtack.objectives.contract import Objective
from hardtack.training.checkpoint import Progress
from hardtack.training.recipe import Recipe


def check_classes(model: nn.Module, data: Dataset) -> None:
    """Refuse a model with fewer classes than the data: the first loss would fail with an index out of range."""
    classes = _num_classes(model)
    if classes is not None and classes < data.num_classes:
        raise UserError(
            f"the model has {classes} classes and {data.name} has {data.num_classes}; "
            "leave model.num_classes out, or set it to the number of classes in the data"
        )


def startup_notes(
    recipe: Recipe, progress: Progress, *, total: int, model: nn.Module, objective: Objective, data: Dataset
) -> Iterator[str]:
    """The lines to print. `total` is the number of steps of the whole run; `model` is not split over processes."""
    if progress.done >= total or progress.stopped:
        yield "already finished"
    elif progress.done:
        yield f"continues at step {progress.done} of {total}"
    else:
        yield from recipe_notes(recipe)
        yield from _input_gradient(recipe, model, objective, data)
        yield from _more_classes(model, data)
        yield from _start(recipe, model)


def recipe_notes(recipe: Recipe) -> Iterator[str]:
    """A sentence for every setting of the recipe that has no effect or an unexpected one."""
    epochs = recipe.train.epochs
    yield from recipe.augment.notes()
    yield from recipe.optimiser.notes()
    yield from recipe.schedule.notes(lr=recipe.optimiser.lr, epochs=epochs)
    yield from recipe.sharpness.notes(epochs=epochs)
    yield from recipe.penalty.notes()
    yield from recipe.objective.notes(epochs=epochs)


def _input_gradient(recipe: Recipe, model: nn.Module, objective: Objective, data: Dataset) -> Iterator[str]:
    """Refuse a model without an input gradient where images are attacked; say so where the gradient is zero."""
    if objective.attack_mode is None:
        return
    device = recipe.runtime.torch_device
    x = torch.full((2, *data.image_shape), 0.5, device=device, requires_grad=True)
    with preserve_state(model, mode=objective.attack_mode), recipe.runtime.arithmetic():
        logits = model(x + torch.linspace(-0.5, 0.5, x.numel(), device=device).view_as(x))
        total = logits.float().square().sum()
        gradient = torch.autograd.grad(total, x, allow_unused=True)[0] if total.requires_grad else None
    if gradient is None:
        raise UserError(
            "the model passes no gradient to its input (no_grad, or detach), so the training attack cannot work: use "
            "objective=standard, or change the model"
        )
    if not bool(gradient.any()):
        yield (
            "the gradient at the images is zero at the start: either the last layer starts at zero, or the training "
            "attack cannot change the images"
        )


def _more_classes(model: nn.Module, data: Dataset) -> Iterator[str]:
    classes = _num_classes(model)
    if classes is not None and classes > data.num_classes:
        yield f"the model has {classes} classes, but the data has {data.num_classes}: some outputs have no images"


def _start(recipe: Recipe, model: nn.Module) -> Iterator[str]:
    adaptation = adapted_weights(model)
    if is_given(recipe.model.name):
        yield "starts from the weights of the module that was given"
    elif adaptation is not None:
        yield f"starts from adapted weights: {adaptation.summary()}"
    elif recipe.model.weights is not None:
        yield f"starts from the weights in {recipe.model.weights}"
    elif recipe.model.pretrained:
        yield f"starts from the published weights of {recipe.model.name}"


def start_facts(recipe: Recipe, model: nn.Module) -> dict[str, str]:
    """What the first line of `metrics.jsonl` says of weights that are neither random nor a file's as they are."""
    facts = {} if (adaptation := adapted_weights(model)) is None else {"adapted": adaptation.summary()}
    return facts | ({"weights_sha256": weights_sha256(model)} if is_given(recipe.model.name) else {})


def adapted_weights(model: nn.Module) -> Any:
    """How the weights were adapted to this model, if they were. Only a `Classifier` says so."""
    return getattr(model, "fitted", None)


def _num_classes(model: nn.Module) -> int | None:
    classes = getattr(model, "num_classes", None)  # any module of the user's may be trained
    return classes if isinstance(classes, int) else None
