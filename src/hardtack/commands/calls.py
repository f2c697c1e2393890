"""The calls of `import hardtack as ht` that can be computed elsewhere, by `on=` and `workers=` as in a command.

ht.evaluate_run("runs/x", suite="autoattack", threat="linf:8/255", workers=4)
ht.analyze(model, data, "jacobian", on="ray")

Their settings are keywords with types (evaluation/keywords.py), so that editors complete them and type checkers find a
misspelt one. `settings=` takes all others by name: `settings={"shifts.pixels": 2}`.
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn
from typing_extensions import Unpack

from hardtack.analysis import Analysis
from hardtack.analysis import analyze as _analyze
from hardtack.base.config import build, flat, merge, nested, plain
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.base.shown_settings import shows_settings
from hardtack.commands.executor_words import take_executor
from hardtack.commands.given_target import given_target
from hardtack.commands.study import run_studies as _run_studies
from hardtack.commands.study import study as _study
from hardtack.engine import Executor
from hardtack.evaluation import Evaluation, EvaluationConfig, Provenance
from hardtack.evaluation import evaluate as _evaluate
from hardtack.evaluation.job import EvaluationJob
from hardtack.evaluation.job import evaluate_run as _evaluate_run
from hardtack.evaluation.keywords import EvaluationSettings, RunEvaluationSettings
from hardtack.models.given import AnyModel
from hardtack.results import Finding
from hardtack.studies.run import StudyOutcome

On = Literal["here", "torchrun", "ray"] | str | None
AnalysisName = (
    Literal[
        "attention", "complexity", "cost", "curvature", "feature_visualization", "growth", "jacobian", "landscape",
        "patch_examples", "perturbations", "saliency", "sparsity", "visions",
    ]
    | str
)  # fmt: skip


@shows_settings(EvaluationConfig, EvaluationSettings)
def evaluate(
    model: AnyModel, data: Any, *, n: int | None = None, config: EvaluationConfig | None = None,
    runtime: Runtime | Mapping[str, Any] | None = None, folder: str | Path | None = None,
    provenance: Provenance | None = None, quiet: bool = False, consistency: bool = True, on: On = None,
    workers: int | None = None, per_gpu: int | None = None, ray: Mapping[str, Any] | None = None,
    executor: Executor | None = None, settings: Mapping[str, Any] | None = None,
    **keywords: Unpack[EvaluationSettings],
) -> Evaluation:  # fmt: skip
    """Evaluate a model on data: `ht.evaluate(model, (x, y), suite="pgd", threat="linf:8/255")`.

    `model`: a module or function from images in [0,1] to logits. `data`: a pair (x, y) of arrays, a DataLoader, a data
    set of torch, of Hugging Face or of `ht.load_data`, or the name of one (docs/python.md says what is read how); `n`:
    only its first images. The other keywords are the settings of `hardtack evaluate` (`hardtack list settings evaluate`
    explains them); `settings` holds those of a suite of your own, and any by a dotted name: `{"shifts.pixels": 2}`.

    With `folder` (a run) pieces, verdicts, examples and results are kept there, and a killed evaluation goes on when
    the call is repeated. `consistency=False` leaves out the comparison of the model's answers under other conditions.
    `on`, `workers`, `per_gpu` and `ray` say where the pieces are computed (docs/more_gpus.md).
    """
    values, runtime = _joined(keywords, settings), _runtime(runtime)
    with _elsewhere(executor, on, workers, per_gpu, ray, runtime) as place:
        return _evaluate(
            typing.cast(nn.Module, model), data, n=n, config=config, runtime=runtime, folder=folder,
            provenance=provenance, quiet=quiet, consistency=consistency, executor=place, **values,
        )  # fmt: skip


@shows_settings(EvaluationJob, RunEvaluationSettings)
def evaluate_run(
    run: str | Path | None = None, /, *, quiet: bool = False, on: On = None, workers: int | None = None,
    per_gpu: int | None = None, ray: Mapping[str, Any] | None = None, executor: Executor | None = None,
    settings: Mapping[str, Any] | None = None, **keywords: Unpack[RunEvaluationSettings],
) -> list[Evaluation]:  # fmt: skip
    """Evaluate a run folder, or `model=…` on `data=…`, as `hardtack evaluate` does; results are kept in the folder.

    One evaluation for each suite of `suite="pgd,sweep"`. Settings with dotted names are in `settings`. Of a run that
    trained a module of yours, `model` is such a module, whose weights do not matter; `data` may be what `ht.evaluate`
    takes.
    """
    with given_target(run, keywords) as named, contextlib.ExitStack() as stack:
        values = _joined(named, settings)
        place = stack.enter_context(_elsewhere(executor, on, workers, per_gpu, ray, values.get("runtime")))
        return _evaluate_run(run, quiet=quiet, executor=place, **values)


def analyze(
    model: AnyModel, data: Any = None, name: AnalysisName | Analysis = "sparsity", *,
    runtime: Runtime | Mapping[str, Any] | None = None,
    folder: str | Path | None = None, provenance: Provenance | None = None, quiet: bool = False, on: On = None,
    workers: int | None = None, per_gpu: int | None = None, ray: Mapping[str, Any] | None = None,
    executor: Executor | None = None, **settings: Any,
) -> Finding:  # fmt: skip
    """One analysis of a model: `ht.analyze(model, (x, y), "jacobian", top=3)`; `hardtack list analyses` names them.

    `settings` are those of the analysis (`hardtack list settings jacobian`). With `folder` (a run) pieces, arrays and
    results are kept there, and a killed analysis goes on when the call is repeated. `on`, `workers`, `per_gpu` and
    `ray` say where the pieces are computed.
    """
    runtime = _runtime(runtime)
    with _elsewhere(executor, on, workers, per_gpu, ray, runtime) as place:
        return _analyze(
            typing.cast(nn.Module, model), data, name, runtime=runtime, folder=folder, provenance=provenance,
            quiet=quiet, executor=place, **settings,
        )  # fmt: skip


def study(
    name: str | Path, /, *, quiet: bool = False, on: On = None, workers: int | None = None, per_gpu: int | None = None,
    ray: Mapping[str, Any] | None = None, executor: Executor | None = None, **settings: Any,
) -> StudyOutcome:  # fmt: skip
    """Run a study: `ht.study("cauchy/table1", scale="smoke")`. Settings are those of `hardtack study`."""
    with _elsewhere(executor, on, workers, per_gpu, ray, nested(settings).get("runtime")) as place:
        return _study(name, quiet=quiet, executor=place, **settings)


def run_studies(
    names: str | Path | Sequence[str | Path], /, *, quiet: bool = False, on: On = None, workers: int | None = None,
    per_gpu: int | None = None, ray: Mapping[str, Any] | None = None, executor: Executor | None = None, **settings: Any,
) -> list[StudyOutcome]:  # fmt: skip
    """Run several studies as one job: `ht.run_studies("cauchy", scale="smoke")`, all of a paper.

    What they share is trained once, and measured for all of them. Settings are those of `study`.
    """
    with _elsewhere(executor, on, workers, per_gpu, ray, nested(settings).get("runtime")) as place:
        return _run_studies(names, quiet=quiet, executor=place, **settings)


def _joined(keywords: Any, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keywords, and the settings that were given in a mapping, by section."""
    if settings is None:
        return nested(keywords)
    if not isinstance(settings, Mapping):
        raise UserError(f"settings must be a mapping, for example {{'attack.steps': 50}}, found {settings!r}")
    given = nested(settings)
    if twice := flat(plain(nested(keywords))).keys() & flat(plain(given)).keys():
        raise UserError(f"'{min(twice)}' is given as a keyword and in settings; give it once")
    return merge(nested(keywords), given)


def _runtime(value: Runtime | Mapping[str, Any] | None) -> Runtime | None:
    made: Runtime | None = build(Runtime, value, path="runtime") if isinstance(value, Mapping) else value
    return made


@contextlib.contextmanager
def _elsewhere(
    executor: Executor | None, on: str | None, workers: int | None, per_gpu: int | None, ray: Mapping[str, Any] | None,
    runtime: Any,
) -> Iterator[Executor | None]:  # fmt: skip
    """The executor that the words name; None for the usual one."""
    words = {"workers": workers, "per_gpu": per_gpu, "ray": ray}
    given = {key: value for key, value in words.items() if value is not None}
    if on is None and not given:
        yield executor
        return
    if executor is not None:
        raise UserError("give either executor=… or on=… and workers=…, not both")
    if on is not None and on.partition(":")[0] == "slurm":
        raise UserError('on="slurm" repeats a command line on other machines: use the command, with --on slurm')
    place, _ = take_executor(on, {**given, **({"runtime": plain(runtime)} if runtime is not None else {})})
    with place or contextlib.nullcontext():
        yield place
