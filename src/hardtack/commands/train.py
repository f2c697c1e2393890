"""`hardtack train` and `ht.train`: a recipe becomes a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, is_of_place, read_place
from hardtack.commands.recipe_files import find_recipe, is_study_row
from hardtack.commands.recipe_validator import validator_of
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hardtack.training import Recipe
    from hardtack.training.callbacks import Callback
    from hardtack.training.keywords import RecipeSettings


@verbs.register("train", settings="hardtack.training.recipe:Recipe")
def train_words(words: Words = None, on: On = None, dry_run: DryRun = False) -> None:
    """Train a recipe: [bold]hardtack train recipes/digits/trades.yaml train.epochs=5[/bold].

    A row of a study is named by study and row: [bold]hardtack train architectures/table2:cctt scale=short[/bold].
    If it is interrupted, the same command resumes it and ends with the same weights. Several processes train one model
    together: [bold]workers=4[/bold] or torchrun on this machine, [bold]--on ray workers=8[/bold],
    [bold]--on slurm slurm.nodes=2 slurm.gpus=4[/bold].
    """
    from hardtack.base.config import parse_words

    if not words:
        raise UserError("name a recipe or settings: hardtack train digits/trades (see hardtack list recipes)")
    path, settings = split_target(words)
    own = [word for word in settings if is_of_place(word)]
    place, _ = read_place(on, parse_words(own))
    recipes = _recipes(path, [word for word in settings if word not in own])
    if on is None and not place.settings and not dry_run:
        for recipe in recipes:
            _train_and_say(recipe)
    else:
        from hardtack.commands.training_places import train_on

        train_on(place, recipes, _train_and_say, dry_run=dry_run)


def _recipes(path: str | None, settings: Sequence[str]) -> list[Recipe]:
    from hardtack.training import read_recipe

    if path and is_study_row(path):
        from hardtack.studies.rows import row_recipes

        return [read_recipe(None, **values) for _, values in row_recipes(path, settings)]
    return [read_recipe(find_recipe(path) if path else None, settings)]


def _train_and_say(recipe: Recipe) -> Path:
    folder = train(recipe)
    say(f"trained: {folder}")
    return folder


def train(
    recipe: str | Path | Recipe | None = None, *, quiet: bool = False, on_step: Callback | None = None,
    on_epoch: Callback | None = None, on_validation: Callback | None = None,
    settings: Mapping[str, Any] | None = None, **sections: Unpack[RecipeSettings],
) -> Path:  # fmt: skip
    """Train a recipe (a file, its name, or a Recipe) and return its run folder.

    The keywords are the sections of a recipe, `train("digits/trades", train={"epochs": 5}, model="timm:resnet18")`;
    `settings` has those of the command line, `{"train.epochs": 5}`. More epochs than a finished run has extend it.
    `on_step`, `on_epoch` and `on_validation` are called with a `TrainingEvent` (training/callbacks.py), whose `stop()`
    ends the run after the epoch.
    """
    from hardtack.base.config import nested
    from hardtack.training import Recipe, read_recipe
    from hardtack.training.callbacks import Callbacks
    from hardtack.training.start import train_recipe

    if not isinstance(recipe, Recipe):
        path = find_recipe(recipe) if recipe is not None else None
        recipe = read_recipe(path, **nested({**sections, **(settings or {})}))
    callbacks = Callbacks(on_step, on_epoch, on_validation)
    return train_recipe(recipe, validate=validator_of(recipe), quiet=quiet, callbacks=callbacks)
