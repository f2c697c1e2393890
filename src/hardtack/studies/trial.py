"""How long a study takes on this machine, tried: trainings step by step, columns on networks that are not trained.

The trainings of different settings are planned one by one, as `hardtack plan train` does, as long as there is time; the
others are computed from their work. Every column is planned once, on the first network that has it. How many images
a trained network will withstand is not known, so attacks give a range.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hardtack.base.config import build, choose
from hardtack.base.digests import json_text
from hardtack.base.errors import UserError
from hardtack.base.instruments import Instruments, Stopwatch
from hardtack.base.registry import analyses
from hardtack.studies.column import StudyColumn
from hardtack.studies.evaluated import stated_column
from hardtack.studies.unit import Unit

if TYPE_CHECKING:
    from hardtack.studies.plan import RunCost
    from hardtack.training import Recipe
    from hardtack.training.plan import TrainingPlan

TRIED_S = 60.0  # for the trainings of a study
WITHSTAND = 0.4  # of the images: what trained networks do under the attacks of a column, about
PAGE_S = 2.0  # for tables, figures and the page


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Seconds of a study on this machine and the memory of its largest process; `tried` of its `runs` were."""

    seconds: float
    low_s: float
    high_s: float
    memory_mb: float
    tried: int
    runs: int
    not_tried: tuple[str, ...] = ()  # columns


class _Part(NamedTuple):
    """Of a column on the network it was tried on: what does not depend on the network, the least and the most."""

    fixed_s: float
    least_s: float
    most_s: float


def try_study(
    units: Sequence[Unit],
    costs: Sequence[RunCost],
    columns_of: Callable[[Unit], Sequence[StudyColumn]],
    *,
    n: int | None,
    instruments: Instruments | None = None,
) -> Trial | None:
    """None where nothing can be tried: data or weights are missing. `units` and `costs` belong together."""
    instruments = instruments or Instruments()
    here = torch.device("cpu")
    start_s = Stopwatch(instruments, here).since(instruments.began) + instruments.end_s(here)
    plans: dict[str, TrainingPlan] = {}
    began = instruments.now()
    for unit in units:
        key = _what_decides(unit)
        if key in plans or instruments.now().since(began).wall_s > TRIED_S:
            continue
        try:
            plans[key] = _planned(unit)
        except UserError:
            return None
    tried = {unit.digest: plans[key] for unit in units if (key := _what_decides(unit)) in plans}
    trainings = _trainings(units, costs, tried)
    fixed_s = least = most = 0.0
    left_out: list[str] = []
    for training in dict.fromkeys(unit.training for unit in units):
        own = [(unit, cost) for unit, cost in zip(units, costs, strict=True) if unit.training == training]
        first, smallest = own[0]
        parts, without = _columns(first, columns_of(first), n)
        share = sum(cost.per_image for _, cost in own) / max(smallest.per_image, 1e-9)  # of the network that was tried
        fixed_s += len(own) * sum(part.fixed_s for part in parts)
        least, most = (
            total + share * sum(getattr(part, name) for part in parts)
            for total, name in ((least, "least_s"), (most, "most_s"))
        )
        left_out += without
    base_s = start_s + sum(trainings) + fixed_s + PAGE_S
    return Trial(
        seconds=base_s + least + WITHSTAND * (most - least), low_s=base_s + least, high_s=base_s + most,
        memory_mb=max(plan.memory_mb for plan in plans.values()), tried=len(tried), runs=len(units),
        not_tried=tuple(dict.fromkeys(left_out)),
    )  # fmt: skip


def _what_decides(unit: Unit) -> str:
    """The settings that the time of a training depends on: seeds do not."""
    runtime = {key: value for key, value in dict(unit.settings.get("runtime") or {}).items() if key != "seed"}
    return json_text([{**unit.settings, "runtime": runtime, "name": "", "output": ""}])


def _planned(unit: Unit) -> TrainingPlan:
    from hardtack.commands.recipe_validator import validator_of
    from hardtack.training.plan import plan_training

    return plan_training(_recipe(unit), make_validator=validator_of, instruments=Instruments())


def _recipe(unit: Unit) -> Recipe:
    """Without the weights of another run, which is not there yet."""
    from hardtack.training import read_recipe

    return read_recipe(None, **unit.settings)


def _trainings(units: Sequence[Unit], costs: Sequence[RunCost], tried: dict[str, Any]) -> list[float]:
    """Seconds of every training: those that were not tried have what tried ones take beside their steps, and their
    own work."""
    pairs = [
        (tried[unit.digest], cost.training) for unit, cost in zip(units, costs, strict=True) if unit.digest in tried
    ]
    work = sum(amount for _, amount in pairs)
    rate = sum(plan.training_s for plan, _ in pairs) / max(work, 1e-9)
    beside_s = sum(plan.total_s - plan.training_s for plan, _ in pairs) / len(pairs)
    return [
        tried[unit.digest].total_s if unit.digest in tried else beside_s + rate * cost.training
        for unit, cost in zip(units, costs, strict=True)
    ]


# ---------------------------------------------------------------- columns


def _columns(unit: Unit, columns: Sequence[StudyColumn], n: int | None) -> tuple[list[_Part], tuple[str, ...]]:
    """Every evaluation and every analysis once, whatever the number of columns that it has."""
    from hardtack.data import load_data, load_training
    from hardtack.training.start import fresh_model

    recipe = _recipe(unit)
    model = fresh_model(recipe, load_training(recipe.data, recipe.augment))
    data = load_data(recipe.data, "test")
    parts: dict[str, _Part] = {}
    left_out = []
    for column in columns:
        if column.kind in ("fact", "worst_of"):
            continue
        try:
            key, part = (_analysed if column.kind == "analysis" else _evaluated)(column, model, data, recipe, n, parts)
            parts[key] = part
        except (UserError, _NotTried):
            left_out.append(column.name)
    return list(parts.values()), tuple(left_out)


class _NotTried(Exception):
    """A column needs more than the network and the test images."""


def _images(data: Any, *counts: int | None) -> Any:
    least = min([len(data), *(count for count in counts if count is not None)])
    return data.first(least) if least < len(data) else data


def _evaluated(
    column: StudyColumn, model: Any, data: Any, recipe: Recipe, n: int | None, known: dict[str, _Part]
) -> tuple[str, _Part]:
    from hardtack.evaluation.plan import plan_evaluation
    from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings

    own = stated_column(column)
    if own.stated.data is not None:
        raise _NotTried
    settings = dict(own.stated.settings)
    key = json_text([settings, own.n])
    if key in known:
        return key, known[key]
    config: EvaluationConfig = build(EvaluationConfig, gather_suite_settings(settings))
    plan = plan_evaluation(
        model, _images(data, n, own.n), config=config, runtime=recipe.runtime, instruments=Instruments(), first=False
    )
    low, high = plan.range_s
    return key, _Part(plan.fixed_s, low - plan.fixed_s, high - plan.fixed_s)


def _analysed(
    column: StudyColumn, model: Any, data: Any, recipe: Recipe, n: int | None, known: dict[str, _Part]
) -> tuple[str, _Part]:
    from hardtack.analysis.analysis import AnalysisContext
    from hardtack.analysis.run import AnalysisJob
    from hardtack.engine.job_plan import rehearse
    from hardtack.evaluation.provenance import Provenance

    key = json_text([column.analysis, column.settings])
    if key in known:
        return key, known[key]
    analysis = choose(analyses, {"name": column.analysis, **column.settings}, path=str(column.analysis))
    context = AnalysisContext(model=model, data=None, runtime=recipe.runtime, name="")
    if analysis.takes_images:
        count = min(number for number in (analysis.n, n, len(data)) if number is not None)
        analysis, context = dataclasses.replace(analysis, n=count), dataclasses.replace(context, data=data)
    watch = Stopwatch(Instruments(), recipe.runtime.torch_device)
    began = watch.now()
    with tempfile.TemporaryDirectory() as folder:
        job = AnalysisJob(analysis, context, folder=Path(folder), provenance=Provenance())
        times = rehearse(job, job.store, watch, made_s=watch.since(began))
    return key, _Part(times.begin_s + times.finish_s, times.rows_s, times.rows_s)
