"""One chunk of an evaluation that attacks nothing: every sight of the images, and how the model does on each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.engine import Notebook
from hardtack.evaluation.measure import Columns
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, look_first
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.sights import Sight, clean_columns
from hardtack.evaluation.trials import default_batch


class Survey:
    """Measures chunk after chunk, as `Measure` does for attacks."""

    def __init__(
        self, model: nn.Module, sights: Sequence[Sight], config: EvaluationConfig, runtime: Runtime, *, like: Tensor
    ) -> None:
        self.model, self.sights, self.runtime = model, sights, runtime
        self.batch_size = config.batch_size or default_batch(tuple(like.shape[1:]), runtime.torch_device.type)
        self.verifier = Verifier(model, runtime, batch_size=self.batch_size)
        self.seconds: dict[str, float] = {}  # by what is looked at, in this process

    def chunk_size(self, most: int) -> int:
        return max(1, min(self.batch_size, most))

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, None]:
        """What every sight noted of the images; nothing has to be kept as evidence."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        columns: dict[str, Tensor] = {"index": index, "label": y}
        with preserve_state(self.model), torch.no_grad():
            clean = self.verifier.logits(x)
            check_logits(clean, y)
            columns |= clean_columns(clean, y)
            for number, sight in enumerate(self.sights):
                began = self._now()
                columns |= sight.look(self.verifier, x, y, index)
                kind = kind_of(sight)
                self.seconds[kind] = self.seconds.get(kind, 0.0) + self._now() - began
                meter.note(sight.name, (number + 1) / len(self.sights))
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


def kind_of(sight: Sight) -> str:
    """Sights of one kind take the same time: `fog` of `fog/3`."""
    return str(sight.settings.get("type", sight.name))
