"""The calls of `import hardtack as ht` that can be computed elsewhere, by `on=` and `workers=` as in a command.

ht.evaluate_run("runs/x", suite="autoattack", threat="linf:8/255", workers=4)
ht.analyze(model, data, "jacobian", on="ray")
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from hardtack.analysis import analyze as _analyze
from hardtack.base.config import nested, plain
from hardtack.base.errors import UserError
from hardtack.commands.executor_words import take_executor
from hardtack.commands.study import study as _study
from hardtack.evaluation import evaluate as _evaluate
from hardtack.evaluation.job import evaluate_run as _evaluate_run

Result = TypeVar("Result")


def computed_elsewhere(call: Callable[..., Result]) -> Callable[..., Result]:
    """`call` with the further settings `on`, `workers`, `per_gpu` and `ray`, which become its `executor`."""

    @functools.wraps(call)
    def with_executor(
        *arguments: Any, on: str | None = None, workers: int | None = None, per_gpu: int | None = None,
        ray: dict[str, Any] | None = None, **settings: Any,
    ) -> Result:  # fmt: skip
        words = {"workers": workers, "per_gpu": per_gpu, "ray": ray}
        given = {key: value for key, value in words.items() if value is not None}
        if on is None and not given:
            return call(*arguments, **settings)
        if settings.get("executor") is not None:
            raise UserError("give either executor=… or on=… and workers=…, not both")
        if on is not None and on.partition(":")[0] == "slurm":
            raise UserError('on="slurm" repeats a command line on other machines: use the command, with --on slurm')
        runtime = plain(nested({key: value for key, value in settings.items() if key.startswith("runtime")}))
        executor, _ = take_executor(on, {**given, **runtime})
        with executor or contextlib.nullcontext():
            return call(*arguments, **{**settings, "executor": executor})

    return with_executor


analyze = computed_elsewhere(_analyze)
evaluate = computed_elsewhere(_evaluate)
evaluate_run = computed_elsewhere(_evaluate_run)
study = computed_elsewhere(_study)
