"""An evaluation of a run folder, or of a named model on named data, by the settings of `hardtack evaluate`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.config import build, flat, nested, plain
from hardtack.base.runtime import Runtime
from hardtack.data.paths import find_path
from hardtack.engine import Executor
from hardtack.evaluation.evaluation import Evaluation
from hardtack.evaluation.settings import (
    EvaluationConfig,
    attack_settings,
    check_taken,
    gather_suite_settings,
    not_taken,
)
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.suites import make_suite
from hardtack.evaluation.target import Target, TargetConfig, complete, load_target, note_missing_images


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(TargetConfig, EvaluationConfig):
    """The settings of `evaluate`: a target and an evaluation. `suite` may name several, separated by commas."""

    def __post_init__(self) -> None:
        """Each suite is checked on its own, by `configs`."""

    def configs(self) -> list[EvaluationConfig]:
        """One configuration for each suite."""
        shared = {item.name: getattr(self, item.name) for item in dataclasses.fields(EvaluationConfig)}
        suites = [suite.strip() for suite in self.suite.split(",")]
        configs = []
        for suite in suites:
            taken = {name: value for name, value in shared.items() if name not in not_taken(suite)}
            if "attack" in taken:
                taken["attack"] = attack_settings(suite, taken["attack"], suites)
            own = {suite: taken["suite_settings"][suite]} if suite in taken["suite_settings"] else {}
            configs.append(build(EvaluationConfig, {**taken, "suite": suite, "suite_settings": own}))
        check_taken(self, suites)
        return configs


def evaluate_run(
    run: str | Path | None = None, /, *, quiet: bool = False, executor: Executor | None = None, **words: Any
) -> list[Evaluation]:
    """Evaluate a run folder, or `model=…` on `data=…`; results are kept in the run folder (or `output`)."""
    values = nested(words)
    job = read_job(run, values)
    target = note_missing_images(load_target(run, job), job.n)
    return [
        evaluate_target(target, config, job.runtime, values, quiet=quiet, executor=executor) for config in job.configs()
    ]


def read_job(run: str | Path | None, values: Mapping[str, Any]) -> EvaluationJob:
    """The settings of an evaluation or attack, checked before anything is loaded."""
    values = complete(run, values)
    if isinstance(values.get("attack"), str):  # attack=fgsm is short for attack.name=fgsm
        values = {**values, "attack": {"name": values["attack"]}}
    job: EvaluationJob = build(EvaluationJob, _with_folders(gather_suite_settings(values)))
    for config in job.configs():
        make_suite(config).threat_stages(config, job.runtime.seed)
    return job


def evaluate_target(
    target: Target,
    config: EvaluationConfig,
    runtime: Runtime,
    values: Mapping[str, Any],
    *,
    quiet: bool = False,
    executor: Executor | None = None,
) -> Evaluation:
    """One evaluation of a target; the record keeps `values`, the settings as the user typed them."""
    provenance = dataclasses.replace(target.provenance, words=_words(values, config))
    return evaluate(
        target.model,
        target.data,
        config=config,
        runtime=runtime,
        folder=target.folder,
        provenance=provenance,
        quiet=quiet,
        executor=executor,
    )


def _words(values: Mapping[str, Any], config: EvaluationConfig) -> tuple[str, ...]:
    """The settings of one suite, as they would be typed to repeat the evaluation."""
    taken = {name: value for name, value in plain(values).items() if name not in not_taken(config.suite)}
    if "attack" in taken and isinstance(config.attack, Mapping):  # of several suites each has its part
        typed = taken.pop("attack")
        typed = {"name": typed} if isinstance(typed, str) else typed
        part = {key: value for key, value in typed.items() if key in config.attack}
        taken |= {"attack": part["name"] if list(part) == ["name"] else part} if part else {}
    settings = {**flat(taken), "suite": config.suite}
    suite = make_suite(config)
    settings |= {"threat": str(suite.threat(config))} if suite.attacks else {}
    settings.pop("output", None)
    return tuple(f"{key}={_typed(value)}" for key, value in settings.items())


def _typed(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else json.dumps(value)


def _with_folders(values: dict[str, Any]) -> dict[str, Any]:
    """Folders of official files and of overlays are looked for beside the data, unless their paths say where."""
    root = values.get("data", {}).get("root")
    folders = {name: str(values[name]) for name in ("files", "frost") if values.get(name) is not None}
    return {**values, **{name: str(find_path(path, root, kind=name)) for name, path in folders.items()}}
