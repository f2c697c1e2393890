"""`hardtack plan`: what an evaluation or a training run will cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import verbs
from hardtack.commands.executor_words import On, is_of_place, read_place
from hardtack.commands.recipe_files import find_recipe, is_recipe, is_study_row, list_recipes
from hardtack.commands.recipe_validator import validator_of
from hardtack.commands.words import say, split_names, split_target
from hardtack.studies.study_files import find_studies

CommandWords = Annotated[
    list[str] | None, typer.Argument(metavar="[VERB] [WORD]... [KEY=VALUE]...", help="the command that is planned")
]

if TYPE_CHECKING:
    from hardtack.analysis.plan import AnalysisPlans
    from hardtack.commands.plan_on import PlanOn
    from hardtack.engine.job_plan import JobPlan
    from hardtack.evaluation.evaluation_plan import Plans
    from hardtack.studies.plan import StudyPlan
    from hardtack.studies.plan_several import StudyPlans
    from hardtack.training.plan import TrainingPlan

    AnyPlan = Plans | TrainingPlan | StudyPlan | StudyPlans | AnalysisPlans | JobPlan | PlanOn


@dataclass(frozen=True, kw_only=True)
class PlanWords:
    """What `plan` takes beside the settings of `evaluate`, and in place of them those of `train`, of a recipe.

    study     a study, whose settings (scale, seeds, rows …) follow
    protocol  all numbers of a paper's table row (hardtack list protocols)
    """

    study: str | None = None
    protocol: str | None = None


_ONE_PROCESS = "several studies are planned for this process; leave out what says where they run (--on, workers=…)"
VERBS = ("train", "evaluate", "analyze", "corrupt", "study")


@verbs.register("plan", settings=("hardtack.evaluation.job:EvaluationJob", "hardtack.commands.plan:PlanWords"))
def plan_words(words: CommandWords = None, on: On = None) -> None:
    """Estimate what a command will cost: write plan before it, [bold]hardtack plan evaluate runs/x suite=pgd[/bold].

    [bold]plan train digits/trades train.epochs=20[/bold], [bold]plan analyze runs/x jacobian n=50[/bold],
    [bold]plan corrupt cifar10 OUT types=fog[/bold], [bold]plan study cauchy/table1 scale=paper[/bold], for several
    studies as one job [bold]plan study cauchy[/bold]. Of train, evaluate and study=NAME the verb may be left out.
    Prints passes through the model, time and memory, after some seconds of trial on this machine. With
    [bold]--on ray[/bold], [bold]--on slurm slurm.hours=4[/bold] or [bold]workers=4[/bold] also the expected wall time
    and GPU-hours there (not of analyze, corrupt and several studies).
    """
    say(plan_command(words or [], on=on))


def plan_command(words: Sequence[str], *, on: str | None = None) -> AnyPlan:
    """What a command will cost: `plan_command(["evaluate", "runs/x", "suite=pgd"])`, for a process of its own."""
    verb, words = split_verb(words)
    if verb in ("analyze", "corrupt"):
        if on is not None or any(is_of_place(word) for word in words):
            raise UserError(f"plan {verb} plans for this process; leave out what says where it runs (--on, workers=…)")
        return _plan_job(verb, words)
    if verb == "study":
        names, settings = split_names(words)
        if len(found := find_studies(names)) > 1:
            return _plan_studies(found, settings, on=on)
        words = [*map(str, found), *settings]
    path, settings = split_target(words)
    check_verb(verb, path, settings)
    if verb == "study" and path is not None:
        path, settings = None, [f"study={path}", *settings]
    own = [word for word in settings if is_of_place(word)]
    trains = {"train": True, "evaluate": False}.get(verb or "")
    if on is None and not own:
        return plan(path, settings, whole_process=True, trains=trains)
    return plan_on(path, [word for word in settings if word not in own], on=on, place_words=own, trains=trains)


def _plan_studies(names: Sequence[str | Path], settings: Sequence[str], *, on: str | None) -> AnyPlan:
    from hardtack.base.config import parse_words
    from hardtack.studies.plan_several import plan_studies

    if on is not None or any(is_of_place(word) for word in settings):
        raise UserError(_ONE_PROCESS)
    return plan_studies(names, parse_words(settings))


def split_verb(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The command that is planned, if it is named, and its words. A run folder of that name goes first."""
    words = list(words)
    if words and words[0] in verbs and not Path(words[0]).exists():
        if words[0] not in VERBS:
            raise UserError(f"plan has no estimate for {words[0]}; it has one for {', '.join(VERBS)}")
        return words[0], words[1:]
    if len(words) > 1 and "=" not in words[1] and not Path(words[0]).exists() and not is_recipe(words[0]):
        hint = did_you_mean(words[0], VERBS) or f"; it plans {', '.join(VERBS)}"
        raise UserError(f"plan: there is no verb '{words[0]}'{hint}")
    return None, words


def check_verb(verb: str | None, path: str | None, settings: Sequence[str]) -> None:
    """Refuse a target that the named command does not take."""
    trains = path is not None and (is_recipe(path) or is_study_row(path))
    near = "" if verb or trains or not path or Path(path).exists() else did_you_mean(path, list_recipes())
    if near:
        raise UserError(f"there is no run folder or recipe '{path}'{near}")
    if verb == "evaluate" and trains:
        raise UserError(f"{path} is a recipe, and evaluate takes a run folder or model=…: hardtack plan train {path}")
    if verb == "train" and path is not None and not trains:
        find_recipe(path)  # says what is missing, with the nearest name
    if verb == "study" and path is None and not any(word.startswith("study=") for word in settings):
        raise UserError("name a study: hardtack plan study cauchy/table1 (hardtack list studies)")


def _plan_job(verb: str, words: Sequence[str]) -> AnalysisPlans | JobPlan:
    from hardtack.base.config import parse_words
    from hardtack.base.instruments import Instruments

    instruments = Instruments(whole_process=True)
    if verb == "analyze":
        from hardtack.analysis.plan import plan_analyses

        return plan_analyses(words, instruments)
    from hardtack.data.copy_plan import plan_copy

    bare = [word for word in words if "=" not in word]
    if not 1 <= len(bare) <= 2 or list(words[: len(bare)]) != bare:
        raise UserError("plan corrupt takes the words of corrupt: hardtack plan corrupt cifar10 OUT types=fog")
    return plan_copy(bare[0], parse_words(words[len(bare) :]), instruments)


def plan_on(
    run: str | Path | None,
    words: Sequence[str] = (),
    *,
    on: str | None = None,
    place_words: Iterable[str] = (),
    trains: bool | None = None,
) -> PlanOn:
    """The same cost with wall time and GPU-hours on the workers that `on` and its words name; none is started."""
    from hardtack.base.config import build, parse_words
    from hardtack.base.runtime import Runtime
    from hardtack.commands.plan_on import on_crew, threads_of
    from hardtack.engine.crew import crew_of
    from hardtack.studies.plan_several import StudyPlans

    place, _ = read_place(on, parse_words(place_words))
    values = parse_words(words)
    runtime: Runtime = build(Runtime, values.get("runtime") or {}, path="runtime")
    is_training = trains if trains is not None else "study" not in values and _is_training(run, values)
    crew = crew_of(place.name, place.settings, runtime, trains=is_training)
    with threads_of(crew):
        found = plan(run, words, trains=trains)
    if isinstance(found, StudyPlans):
        raise UserError(_ONE_PROCESS)
    return on_crew(found, crew)


def _is_training(run: str | Path | None, values: Mapping[str, Any]) -> bool:
    from hardtack.training import Recipe

    if run is not None:
        return is_recipe(run) or is_study_row(run)
    shared = {"name", "output", "data", "model", "runtime"}  # sections that an evaluation has too
    return bool(values.keys() & {item.name for item in dataclasses.fields(Recipe)} - shared)


def plan(
    run: str | Path | None, words: Iterable[str] = (), *, whole_process: bool = False, trains: bool | None = None
) -> Plans | TrainingPlan | StudyPlan | StudyPlans:
    """The cost of `evaluate` for a run folder or a model, of `train` for a recipe or its settings, or of a study.

    `whole_process`: this process does nothing else, so that time and memory count from its start, as in the job itself.
    `trains`: whether settings without a recipe are those of `train`; None: as their sections say.
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
        from hardtack.studies.plan_several import plan_studies

        if len(found := find_studies([str(values.pop("study"))])) > 1:
            return plan_studies(found, values)
        return plan_study(str(found[0]), values, tries=whole_process, instruments=instruments)
    if run is None and (trains if trains is not None else _is_training(run, values)):
        return training(read_recipe(None, words))
    if "protocol" in values:
        from hardtack.studies.protocol_run import plan_protocol

        return Plans(tuple(plan_protocol(run, values, instruments)))
    return plan_run(run, values, instruments)
