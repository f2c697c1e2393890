"""One piece of an evaluation that shows views: every view of the images, and what the model predicts for each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.engine import Notebook
from hardtack.evaluation.consistency import Consistency
from hardtack.evaluation.measure import Columns, whole_batches
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, look_first
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import default_batch
from hardtack.evaluation.views import View, clean_columns


class ViewMeasure:
    """Measures piece after piece, as `Measure` does for attacks."""

    def __init__(
        self, model: nn.Module, views: Sequence[View], config: EvaluationConfig, runtime: Runtime, *, like: Tensor
    ) -> None:
        self.model, self.views, self.runtime = model, views, runtime
        self.batch_size = config.batch_size or default_batch(tuple(like.shape[1:]), runtime.torch_device.type)
        self.verifier = Verifier(model, runtime, batch_size=self.batch_size)
        self.consistency = Consistency(model, runtime, batch_size=self.batch_size, attacks=False)
        self.precision = runtime.precision
        self.piece_flags: list[Flag] = []  # of the last piece
        self.seconds: dict[str, float] = {}  # by kind of view, in this process

    def chunk_size(self, most: int) -> int:
        return whole_batches(1, self.batch_size, self.runtime, most=most)

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, None]:
        """The columns of all views; no images are kept as evidence."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        columns: dict[str, Tensor] = {"index": index, "label": y}
        with preserve_state(self.model), torch.no_grad():
            clean = self.verifier.logits(x)
            check_logits(clean, y)
            columns |= clean_columns(clean, y)
            for number, view in enumerate(self.views):
                began = self._now()
                columns |= view.columns(self.verifier, x, y, index)
                self.seconds[view.kind] = self.seconds.get(view.kind, 0.0) + self._now() - began
                meter.note(view.name, (number + 1) / len(self.views))
            self.piece_flags = self.consistency.piece(x, index, clean)
        return {name: value.cpu().numpy() for name, value in columns.items()}, {}, None

    def _now(self) -> float:
        if self.runtime.torch_device.type == "cuda":
            torch.cuda.synchronize(self.runtime.torch_device)
        return time.monotonic()

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        return look_first(self.model, x, y, self.runtime, classes=classes, random_expected=False)[1]

    def note_search(self, precision: str, seconds: Mapping[str, float]) -> None:
        """What another process says about a piece that it measured."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def complete(self, identity: Any, *, seconds: Mapping[str, float] = MappingProxyType({})) -> Any:
        own = {name: round(value, 3) for name, value in self.seconds.items()}
        return dataclasses.replace(identity, seconds={**own, **seconds})
