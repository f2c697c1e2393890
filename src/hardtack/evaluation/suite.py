"""Measuring the same way every time: `evaluate` gives a model's accuracy, clean and attacked, image by image.

Images go through in chunks. In each: clean predictions in fp32, then every trial of the suite on the images
still standing, each success confirmed in fp32 on the very tensor found (in the ball, in the box, misclassified).
Whatever the search did, a reported robust accuracy is then a true upper bound. Finished chunks are on disk, and so
is what a long one has come to; a repeated call goes on from there and ends with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import check_pair, chunks, count, head, shape_of
from hardtack.engine import Job, MemoryStore, Notebook, PieceResult, PieceStore, Span, Store, choose_executor, run_job
from hardtack.evaluation.class_subset import class_subset
from hardtack.evaluation.measure import Columns, Measure
from hardtack.evaluation.outcome import Evaluation, identify, recall, summarise
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.survey import Survey
from hardtack.evaluation.surveys import Scene, make_sights
from hardtack.evaluation.trials import make_trials
from hardtack.models.dtypes import names_dtypes


@names_dtypes
def evaluate(
    model: nn.Module,
    data: Dataset | tuple[Tensor, Tensor],
    *,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    provenance: Provenance | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Evaluation:
    """Evaluate a model on a data set or on a pair (x, y) of tensors; settings are EvaluationConfig's.

    With `folder` (a run) chunks, verdicts, examples and results are kept there; a killed evaluation goes
    on when it is repeated; under torchrun its chunks are shared out between the processes. Without a
    folder every process measures everything.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"evaluate takes a model, found {type(model).__name__}; ht.load_model(NAME) makes one")
    check_pair(data)
    model, data = class_subset(model, data)
    config = config or build(EvaluationConfig, settings)
    runtime = runtime or Runtime()
    home = next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        job = SuiteJob(model, data, config, runtime=runtime, folder=folder, provenance=provenance or Provenance())
        executor = choose_executor(runtime, shared=folder is not None)
        result: Evaluation = run_job(job, store=job.store, executor=executor, quiet=quiet or not runtime.is_main)
    finally:
        model.to(home)
    return result


class SuiteJob(Job):
    """One suite as a job of the engine: its rows are the images."""

    unit = "img"

    def __init__(
        self,
        model: nn.Module,
        data: Dataset | tuple[Tensor, Tensor],
        config: EvaluationConfig,
        *,
        runtime: Runtime,
        folder: str | Path | None,
        provenance: Provenance,
    ) -> None:
        self.model, self.data, self.config, self.runtime, self.folder = model, data, config, runtime, folder
        self.title, self.total, self.began = f"evaluate {config.suite}", count(data), time.monotonic()
        self.trials = make_trials(config, runtime.seed)
        self.sights = make_sights(config, Scene(model, shape_of(data), runtime.seed))
        self.identity = identify(
            model, data, config, self.trials, self.sights, runtime, provenance, kept=folder is not None
        )
        self.store: Store = MemoryStore()
        if folder is not None:
            self.store = PieceStore(Path(folder) / "verdicts", self.identity.id, root=folder)

    def recall(self) -> Evaluation | None:
        return None if self.folder is None else recall(self.folder, self.identity.id)

    def begin(self) -> None:
        x, y = head(self.data, self.runtime.torch_device)
        self.measure: Measure | Survey = (
            Survey(self.model, self.sights, self.config, self.runtime, like=x)
            if self.sights
            else Measure(self.model, self.trials, self.config, self.runtime, like=x)
        )
        self.flags = self.measure.first_checks(x, y, classes=getattr(self.data, "num_classes", None))

    def piece_size(self, most: int) -> int:
        return self.config.chunk_size or self.measure.chunk_size(most)

    def inputs(self, spans: Sequence[Span]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for _, images in chunks(self.data, self.runtime.torch_device, spans):
            yield images

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        wanted = max(0, self.config.examples - span.start)
        columns, examples, evidence = self.measure(*inputs, wanted=wanted, notebook=notebook, meter=meter)
        files = {}
        if self.config.keep and evidence is not None and len(evidence["index"]):
            files[f"adversarial/{self.identity.id}/{span.start:08d}.npz"] = evidence
        return PieceResult(columns=columns, arrays=examples, files=files)

    def finish(self, columns: Columns, arrays: Columns, *, is_main: bool) -> Evaluation:
        identity, folder = self.measure.known(self.identity), self.folder if is_main else None
        seconds = time.monotonic() - self.began
        return summarise(identity, columns, arrays, self.flags, folder, seconds=seconds)
