"""The `validate` function that training is handed: clean and robust accuracy after an epoch.

The images are a split cut from the training data; the test set plays no part in choosing a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from hardtack.base.config import build, plain
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suite import evaluate
from hardtack.threats import Threat

Scores = dict[str, float]


def make_validator(
    data: Dataset,
    *,
    attack: Any = None,
    one_step: Any = None,
    union: Sequence[Threat] = (),
    batch_size: int,
    runtime: Runtime,
) -> Callable[[nn.Module], Scores]:
    """A function from a model to its scores on `data`; `score` is the one that checkpoints are chosen by.

    attack     the attack of robust accuracy (None: clean accuracy only)
    one_step   a one-step attack beside it, whose accuracy reveals catastrophic overfitting
    union      further threats; an image counts as robust only if it is robust under all of them
    """

    def settings(chosen: Any) -> EvaluationConfig:
        words: dict[str, Any] = {"suite": "clean"}
        if chosen is not None:
            own = plain(chosen)
            words = {"suite": "pgd", "union": tuple(union), "threat": own.pop("threat"), "attack": own}
        return build(EvaluationConfig, {"batch_size": batch_size, "examples": 0, "audit": 0, **words})

    config = settings(attack)

    def validate(model: nn.Module) -> Scores:
        measured = evaluate(model, data, config=config, runtime=runtime, quiet=True, consistency=False)
        scores = {"clean_accuracy": measured.clean_accuracy}
        if measured.robust_accuracy is not None:
            scores["robust_accuracy"] = measured.robust_accuracy
        if one_step is not None:
            quick = evaluate(model, data, config=settings(one_step), runtime=runtime, quiet=True, consistency=False)
            scores["fgsm_accuracy"] = float(quick.robust.mean())
        return scores | {"score": scores.get("robust_accuracy", scores["clean_accuracy"])}

    return validate
