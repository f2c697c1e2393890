"""The validator of a recipe: training is handed one and never imports evaluation, so it is made here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardtack.evaluation.validation import Validator
    from hardtack.training import Recipe


def validator_of(recipe: Recipe) -> Validator | None:
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
