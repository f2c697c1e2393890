"""`hardtack plan`: what an evaluation or a training run will cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hardtack.base.registry import verbs
from hardtack.commands.recipe_files import find_recipe, is_recipe, is_study_row
from hardtack.commands.train import validator_of
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from hardtack.evaluation.plan import Plans
    from hardtack.studies.plan import StudyPlan
    from hardtack.training.plan import TrainingPlan


@verbs.register("plan")
def plan_words(words: Words = None) -> None:
    """Estimate the cost of an evaluation or a training run: [bold]hardtack plan runs/x suite=autoattack[/bold].

    Or [bold]hardtack plan digits/trades train.epochs=20[/bold],
    or [bold]hardtack plan study=cauchy/table1 scale=paper[/bold].
    Prints passes through the model, time and memory, after a few seconds of calibration on this machine.
    """
    say(plan(*split_target(words)))


def plan(run: str | Path | None, words: Iterable[str] = ()) -> Plans | TrainingPlan | StudyPlan:
    """The cost of `evaluate` for a run folder or a model, of `train` for a recipe or its settings, or of a study."""
    from hardtack.base.config import parse_words
    from hardtack.evaluation.plan import Plans, plan_run
    from hardtack.training import Recipe, read_recipe
    from hardtack.training.plan import plan_training

    words = list(words)
    if run is not None and is_recipe(run):
        return plan_training(read_recipe(find_recipe(run), words), make_validator=validator_of)
    if run is not None and is_study_row(run):
        from hardtack.studies.rows import row_recipes

        *_, (_, recipe) = row_recipes(str(run), words)
        return plan_training(read_recipe(None, **recipe), make_validator=validator_of)
    values = parse_words(words)
    if "study" in values:
        from hardtack.studies.plan import plan_study

        return plan_study(str(values.pop("study")), values)
    shared = {"name", "output", "data", "model", "runtime"}  # sections that an evaluation has too
    if run is None and values.keys() & {item.name for item in dataclasses.fields(Recipe)} - shared:
        return plan_training(read_recipe(None, words), make_validator=validator_of)
    if "protocol" in values:
        from hardtack.studies.protocol_run import plan_protocol

        return Plans(tuple(plan_protocol(run, values)))
    return plan_run(run, values)
