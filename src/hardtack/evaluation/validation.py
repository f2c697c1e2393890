"""The `validate` function that training is handed: clean and robust accuracy after an epoch.

The images are a split cut from the training data; the test set plays no part in choosing a checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state
from hardtack.attacks.contract import settings_of
from hardtack.base.config import build, plain
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suite import evaluate
from hardtack.threats import Threat

Scores = dict[str, float]
_HARMLESS = Fraction(1, 10_000)  # of the radius: every step is taken, and next to no prediction changes


def make_validator(
    data: Dataset,
    *,
    attack: Any = None,
    one_step: Any = None,
    union: Sequence[Threat] = (),
    batch_size: int,
    runtime: Runtime,
) -> Validator:
    """A function from a model to its scores on `data`; `score` is the one that checkpoints are chosen by.

    attack     the attack of robust accuracy (None: clean accuracy only)
    one_step   a one-step attack beside it, whose accuracy reveals catastrophic overfitting
    union      further threats; an image counts as robust only if it is robust under all of them
    """
    return Validator(data, attack, one_step, tuple(union), batch_size, runtime)


class Validator:
    """Called with a model it returns the scores; `rehearse` takes as long as that without measuring anything."""

    def __init__(
        self, data: Dataset, attack: Any, one_step: Any, union: tuple[Threat, ...], batch_size: int, runtime: Runtime
    ) -> None:
        self.data, self.batch_size, self.runtime = data, batch_size, runtime
        self.attack, self.one_step, self.union = attack, one_step, union

    @property
    def images(self) -> int:
        return len(self.data)

    @property
    def attacks(self) -> bool:
        return self.attack is not None

    def __call__(self, model: nn.Module) -> Scores:
        return self._scores(model, self.data)

    def _scores(self, model: nn.Module, data: Any) -> Scores:
        config = self._settings(self.attack, self.union)
        measured = evaluate(model, data, config=config, runtime=self.runtime, quiet=True, consistency=False)
        scores = {"clean_accuracy": measured.clean_accuracy}
        if measured.robust_accuracy is not None:
            scores["robust_accuracy"] = measured.robust_accuracy
        if self.one_step is not None:
            config = self._settings(self.one_step, self.union)
            quick = evaluate(model, data, config=config, runtime=self.runtime, quiet=True, consistency=False)
            scores["fgsm_accuracy"] = float(quick.robust.mean())
        return scores | {"score": scores.get("robust_accuracy", scores["clean_accuracy"])}

    def _settings(self, chosen: Any, union: Sequence[Threat]) -> EvaluationConfig:
        words: dict[str, Any] = {"suite": "clean"}
        if chosen is not None:
            own = plain(chosen)
            words = {"suite": "pgd", "union": tuple(union), "threat": own.pop("threat"), "attack": own}
        return build(EvaluationConfig, {"batch_size": self.batch_size, "examples": 0, "audit": 0, **words})

    # ------------------------------------------------------------ how long it takes

    def labels(self, model: nn.Module, count: int, *, withstand: bool) -> Dataset:
        """The first images, labelled so that the model is right on all of them (`withstand`), or on none."""
        data = self.data.first(count)
        predictions = self._predictions(model, data)
        data.labels = predictions if withstand else (predictions + 1) % data.num_classes
        return data

    def rehearse(self, model: nn.Module, data: Dataset) -> None:
        """Validate on these images while the attack takes its steps but moves next to nothing: no image is broken."""
        harmless = Validator(
            data, _weakened(self.attack), _weakened(self.one_step),
            tuple(threat.scaled(_HARMLESS) for threat in self.union), self.batch_size, self.runtime,
        )  # fmt: skip
        harmless(model)

    @torch.no_grad()
    def _predictions(self, model: nn.Module, data: Dataset) -> Tensor:
        device, parts = self.runtime.torch_device, []
        with preserve_state(model):
            for start in range(0, len(data), self.batch_size):
                x = data.batch(range(start, min(start + self.batch_size, len(data))), device).x
                with self.runtime.arithmetic("fp32"):
                    parts.append(model(x).float().argmax(dim=1).cpu())
        return torch.cat(parts)


def _weakened(attack: Any) -> Any:
    """The same attack with a radius that changes next to nothing, where it has one of its own."""
    if attack is None or "threat" not in settings_of(attack):
        return attack
    return dataclasses.replace(attack, threat=attack.threat.scaled(_HARMLESS))
