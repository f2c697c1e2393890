"""`hardtack train` and `ht.train`: a recipe becomes a run folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardtack.base.errors import UserError
from hardtack.base.registry import verbs
from hardtack.commands.recipe_files import find_recipe, is_study_row
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from hardtack.training import Recipe, Validate


@verbs.register("train")
def train_words(words: Words = None) -> None:
    """Train a recipe: [bold]hardtack train recipes/digits/trades.yaml train.epochs=5[/bold].

    A row of a study is named by study and row: [bold]hardtack train architectures/table2:cctt scale=short[/bold].
    If it is interrupted, the same command resumes it and ends with the same weights. Under torchrun all processes train
    one model together.
    """
    from hardtack.training import read_recipe

    if not words:
        raise UserError("name a recipe or settings: hardtack train digits/trades (see hardtack list recipes)")
    path, settings = split_target(words)
    if path and is_study_row(path):
        from hardtack.studies.rows import row_recipes

        for _, values in row_recipes(path, settings):
            say(f"trained: {train(read_recipe(None, **values))}")
        return
    say(f"trained: {train(read_recipe(find_recipe(path) if path else None, settings))}")


def train(recipe: str | Path | Recipe | None = None, *, quiet: bool = False, **words: Any) -> Path:
    """Train a recipe (a file, its name, or a Recipe) and return its run folder.

    Settings are those of the command line: `train("recipes/digits/trades.yaml", **{"train.epochs": 5})`.
    """
    from hardtack.base.config import nested
    from hardtack.training import Recipe, read_recipe
    from hardtack.training.start import train_recipe

    if not isinstance(recipe, Recipe):
        path = find_recipe(recipe) if recipe is not None else None
        recipe = read_recipe(path, **nested(words))
    return train_recipe(recipe, validate=validator_of(recipe), quiet=quiet)


def validator_of(recipe: Recipe) -> Validate | None:
    """The function that measures the model after an epoch, as the recipe asks; None without a validation split."""
    from hardtack.data import load_data
    from hardtack.evaluation.validation import make_validator
    from hardtack.training import validation_attack
    from hardtack.training.overfitting import one_step_attack

    if recipe.data.validation == 0:
        return None
    data, limit = load_data(recipe.data, "validation"), recipe.validation.limit
    attack = validation_attack(recipe)
    return make_validator(
        data if limit is None else data.first(limit),
        attack=attack,
        one_step=one_step_attack(recipe.objective, attack),
        # without an attack of its own, validation takes the worst of all threats that are trained against
        union=() if recipe.validation.attack is not None else recipe.objective.threats()[1:],
        batch_size=recipe.validation.batch_size,
        runtime=dataclasses.replace(recipe.runtime, compile=False),
    )
