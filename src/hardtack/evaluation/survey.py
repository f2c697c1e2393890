"""One chunk of an evaluation that attacks nothing: every view of the images, and how the model does on each."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import untouched
from hardtack.attacks.judge import Judge
from hardtack.errors import UserError
from hardtack.evaluation.measure import Columns
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, look_first
from hardtack.evaluation.trials import EvaluationConfig, default_batch
from hardtack.evaluation.views import View
from hardtack.progress import Meter
from hardtack.results import Notebook
from hardtack.runtime import Runtime


class Survey:
    """Measures chunk after chunk, as `Measure` does for attacks."""

    def __init__(
        self, model: nn.Module, views: list[View], config: EvaluationConfig, runtime: Runtime, *, like: Tensor
    ) -> None:
        self.model, self.views, self.runtime = model, views, runtime
        self.batch_size = config.batch_size or default_batch(tuple(like.shape[1:]), runtime.torch_device.type)
        self.judge = Judge(model, runtime, batch_size=self.batch_size)
        self.seconds: dict[str, float] = {"images": 0.0, "model": 0.0}

    def chunk_size(self, most: int) -> int:
        return max(1, min(self.batch_size, most))

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, None]:
        """For every view, right or not, and the confidence in the true class; nothing has to be kept as evidence."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        columns: dict[str, Tensor] = {"index": index, "label": y}
        with untouched(self.model), torch.no_grad():
            clean = self.judge.logits(x)
            check_logits(clean, y)
            columns |= {"clean_prediction": clean.argmax(dim=1), "clean_correct": clean.argmax(dim=1) == y}
            columns["clean_confidence"] = _confidence(clean, y)
            for number, view in enumerate(self.views):
                _same_labels(view, y, index)
                began = self._now()
                seen = view.show(x, index)
                made = self._now()
                logits = self.judge.logits(seen)
                check_logits(logits, y)
                columns[f"correct@{view.name}"] = logits.argmax(dim=1) == y
                columns[f"confidence@{view.name}"] = _confidence(logits, y)
                self.seconds["images"] += made - began
                self.seconds["model"] += self._now() - made
                meter.note(view.name, (number + 1) / len(self.views))
        return {name: value.cpu().numpy() for name, value in columns.items()}, {}, None

    def _now(self) -> float:
        if self.runtime.torch_device.type == "cuda":
            torch.cuda.synchronize(self.runtime.torch_device)
        return time.monotonic()

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        return look_first(self.model, x, y, self.runtime, classes=classes, random_expected=False)[1]

    def known(self, identity: Any) -> Any:
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        return dataclasses.replace(identity, seconds=seconds)


def _same_labels(view: View, y: Tensor, index: Tensor) -> None:
    """Files are matched with the data by place; where the labels differ, they are of other images."""
    if view.labels is None:
        return
    differ = (view.labels(index) != y.cpu()).nonzero()[:, 0]
    if len(differ):
        at = int(index[differ[0]])
        raise UserError(
            f"{view.name}: image {at} has another label in the files than in the data ({len(differ)} of {len(y)} do); "
            f"the data must be the test set that the files were made from, in its order"
        )


def _confidence(logits: Tensor, y: Tensor) -> Tensor:
    return logits.float().softmax(dim=1).gather(1, y[:, None])[:, 0]
