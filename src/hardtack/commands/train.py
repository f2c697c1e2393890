"""`hardtack train` and `ht.train`: a recipe becomes a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardtack.base.errors import UserError
from hardtack.base.quick_imports import quick_imports
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import DryRun, On, is_of_place, read_place
from hardtack.commands.recipe_files import find_recipe, is_study_row
from hardtack.commands.recipe_validator import validator_of
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hardtack.threats import Threat
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
    with quick_imports():
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
    recipe: str | Path | Recipe | None = None, *, epochs: int | None = None, batch_size: int | None = None,
    lr: float | None = None, threat: str | Threat | None = None, quiet: bool = False, on_step: Callback | None = None,
    on_epoch: Callback | None = None, on_validation: Callback | None = None,
    settings: Mapping[str, Any] | None = None, **sections: Unpack[RecipeSettings],
) -> Path:  # fmt: skip
    """Train a recipe, or a module on data of your own, and return the run folder.

        ht.train("digits/trades", epochs=5, output="runs/longer")
        ht.train(model=net, data=(x, y), objective="adversarial", threat="linf:8/255", epochs=20)

    The keywords are the sections of a recipe, `optimiser={"name": "sgd", "lr": 0.1}`, and short ones for what is
    changed most; `settings` has those of the command line, `{"train.clip": 1.0}`. `model` may be a module, `data` all
    that `ht.evaluate` takes, or `{"train": …, "validation": …}`; without the latter, a tenth of it is set aside
    (`{"data.validation": 0.1}`). The module itself gets the weights of the best checkpoint. A call that was stopped
    continues when it is repeated with such a module and the same data; more epochs than a finished run has extend it.

    `on_step`, `on_epoch` and `on_validation` are called with a `TrainingEvent` (training/callbacks.py), whose `stop()`
    ends the run after the epoch.
    """
    from hardtack.commands.given_training import changed, check_recipe, module_of, named, take_weights, with_short
    from hardtack.training import Recipe, read_recipe
    from hardtack.training.callbacks import Callbacks
    from hardtack.training.start import train_recipe

    check_recipe(recipe)
    module = module_of(sections.get("model"))
    path = find_recipe(recipe) if isinstance(recipe, str | Path) else None
    short = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "threat": threat}
    with named(sections, settings or {}, with_data=recipe is not None) as values:
        values = with_short(values, path, short)
        if not isinstance(recipe, Recipe):
            recipe = read_recipe(path, **values)
        elif values:
            recipe = changed(recipe, values)
        callbacks = Callbacks(on_step, on_epoch, on_validation)
        folder = train_recipe(recipe, validate=validator_of(recipe), quiet=quiet, callbacks=callbacks)
    if module is not None:
        take_weights(module, folder)
    return folder
