"""`hardtack plan`: what an evaluation or a training run will cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardtack.base.registry import verbs
from hardtack.commands.executor_words import On, is_of_place, read_place
from hardtack.commands.recipe_files import find_recipe, is_recipe, is_study_row
from hardtack.commands.recipe_validator import validator_of
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from hardtack.commands.plan_on import PlanOn
    from hardtack.evaluation.evaluation_plan import Plans
    from hardtack.studies.plan import StudyPlan
    from hardtack.training.plan import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class PlanWords:
    """What `plan` takes beside the settings of `evaluate`, and in place of them those of `train`, of a recipe.

    study     a study, whose settings (scale, seeds, rows …) follow
    protocol  all numbers of a paper's table row (hardtack list protocols)
    """

    study: str | None = None
    protocol: str | None = None


@verbs.register("plan", settings=("hardtack.evaluation.job:EvaluationJob", "hardtack.commands.plan:PlanWords"))
def plan_words(words: Words = None, on: On = None) -> None:
    """Estimate the cost of an evaluation or a training run: [bold]hardtack plan runs/x suite=autoattack[/bold].

    Or [bold]hardtack plan digits/trades train.epochs=20[/bold],
    or [bold]hardtack plan study=cauchy/table1 scale=paper[/bold].
    Prints passes through the model, time and memory, after a few seconds of calibration on this machine. With
    [bold]--on ray[/bold], [bold]--on slurm slurm.hours=4[/bold] or [bold]workers=4[/bold] also the expected wall time
    and GPU-hours there.
    """
    path, settings = split_target(words)
    own = [word for word in settings if is_of_place(word)]
    if on is None and not own:
        say(plan(path, settings, whole_process=True))
    else:
        say(plan_on(path, [word for word in settings if word not in own], on=on, place_words=own))


def plan_on(
    run: str | Path | None, words: Sequence[str] = (), *, on: str | None = None, place_words: Iterable[str] = ()
) -> PlanOn:
    """The same cost with wall time and GPU-hours on the workers that `on` and its words name; none is started."""
    from hardtack.base.config import build, parse_words
    from hardtack.base.runtime import Runtime
    from hardtack.commands.plan_on import on_crew, threads_of
    from hardtack.engine.crew import crew_of

    place, _ = read_place(on, parse_words(place_words))
    values = parse_words(words)
    runtime: Runtime = build(Runtime, values.get("runtime") or {}, path="runtime")
    trains = "study" not in values and _is_training(run, values)
    crew = crew_of(place.name, place.settings, runtime, trains=trains)
    with threads_of(crew):
        return on_crew(plan(run, words), crew)


def _is_training(run: str | Path | None, values: Mapping[str, Any]) -> bool:
    from hardtack.training import Recipe

    if run is not None:
        return is_recipe(run) or is_study_row(run)
    shared = {"name", "output", "data", "model", "runtime"}  # sections that an evaluation has too
    return bool(values.keys() & {item.name for item in dataclasses.fields(Recipe)} - shared)


def plan(
    run: str | Path | None, words: Iterable[str] = (), *, whole_process: bool = False
) -> Plans | TrainingPlan | StudyPlan:
    """The cost of `evaluate` for a run folder or a model, of `train` for a recipe or its settings, or of a study.

    `whole_process`: this process does nothing else, so that time and memory count from its start, as in the job itself.
    """
    from hardtack.base.config import parse_words
    from hardtack.base.instruments import Instruments
    from hardtack.evaluation.evaluation_plan import Plans
    from hardtack.evaluation.plan import plan_run
    from hardtack.training import read_recipe
    from hardtack.training.plan import plan_training

    words, instruments = list(words), Instruments(whole_process=whole_process)
    training = functools.partial(plan_training, make_validator=validator_of, instruments=instruments)
    if run is not None and is_recipe(run):
        return training(read_recipe(find_recipe(run), words))
    if run is not None and is_study_row(run):
        from hardtack.studies.rows import row_recipes

        *_, (_, recipe) = row_recipes(str(run), words)
        return training(read_recipe(None, **recipe))
    values = parse_words(words)
    if "study" in values:
        from hardtack.studies.plan import plan_study

        return plan_study(str(values.pop("study")), values)
    if run is None and _is_training(run, values):
        return training(read_recipe(None, words))
    if "protocol" in values:
        from hardtack.studies.protocol_run import plan_protocol

        return Plans(tuple(plan_protocol(run, values, instruments)))
    return plan_run(run, values, instruments)
