"""Starting or resuming a training run of a recipe: its data, its model, and the trainer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.base.trust import remember_paths
from hardtack.data import Dataset, load_training
from hardtack.models import Classifier, load_model
from hardtack.models.from_file import place_of
from hardtack.models.kept import fit_to, is_given, weights_sha256
from hardtack.training.callbacks import Callbacks
from hardtack.training.checkpoint import saved_architecture
from hardtack.training.recipe import Recipe
from hardtack.training.trainer import Trainer, Validate


def train_recipe(
    recipe: Recipe, *, validate: Validate | None, quiet: bool = False, folder: Path | None = None,
    start: Path | None = None, callbacks: Callbacks | None = None,
) -> Path:  # fmt: skip
    """Train a recipe and return its run folder; a run that was interrupted is resumed.

    On another machine, `folder` is the copy of the run folder, and `start` that of the run whose weights it begins
    with.
    """
    remember_paths(plain({"data": recipe.data, "model": recipe.model}))  # its evaluations may open them again
    data = load_training(recipe.data, recipe.augment)
    begin = _without_start(recipe, folder or recipe.folder)
    if start is not None and begin.model.weights:
        begin = dataclasses.replace(begin, model=dataclasses.replace(begin.model, weights=str(start)))
    model = fresh_model(begin, data)
    return Trainer(recipe, model, data, validate=validate, quiet=quiet, folder=folder, callbacks=callbacks).fit()


def check_start(recipe: Recipe) -> None:
    """Load data and model as a training would: mistakes show before other machines begin to work."""
    remember_paths(plain({"data": recipe.data, "model": recipe.model}))
    fresh_model(_without_start(recipe, recipe.folder), load_training(recipe.data, recipe.augment))


def fresh_model(recipe: Recipe, data: Dataset) -> Classifier:
    """The model of a recipe, for the classes and the image size of the data."""
    height, side = data.image_shape[1:]
    size = None if height != side and place_of(recipe.model.name) else side  # a network of the user's may take both
    model = load_model(recipe.model, num_classes=data.num_classes, image_size=size, seed=recipe.runtime.seed)
    if is_given(recipe.model.name):
        first = data.batch(range(min(8, len(data))))
        fit_to(model, first.x, data.labels)
        _check_same(model, recipe.runtime)
    return model


def _check_same(model: Classifier, runtime: Runtime) -> None:
    """Refuse modules that the processes of torchrun made with other weights each, as unseeded ones are."""
    if runtime.world_size == 1:
        return
    runtime.join()
    own = torch.tensor(list(bytes.fromhex(weights_sha256(model))), device=runtime.torch_device)
    all_of_them = [torch.empty_like(own) for _ in range(runtime.world_size)]
    torch.distributed.all_gather(all_of_them, own)
    if not all(torch.equal(each, own) for each in all_of_them):
        raise UserError(
            "the processes of torchrun made the module with other weights each: seed them alike before it is made, "
            "torch.manual_seed(0)"
        )


def _without_start(recipe: Recipe, folder: Path) -> Recipe:
    """A resumed run has all weights in its saved state; the file that it started from may be missing or changed."""
    stored = saved_architecture(folder) if recipe.model.weights or recipe.model.pretrained else {}
    if not stored:
        return recipe
    mean, std = tuple(stored["mean"]), tuple(stored["std"])  # which those weights may have brought along
    bare = dataclasses.replace(recipe.model, weights=None, adapt=False, pretrained=False, mean=mean, std=std)
    return dataclasses.replace(recipe, model=bare)
