"""Measuring the same way every time: `evaluate` gives a model's accuracy, clean and attacked, image by image.

Images go through in chunks. In each: clean predictions in fp32, then every trial of the suite on the images
still standing, each success confirmed in fp32 on the very tensor found (in the ball, in the box, misclassified).
Whatever the search did, a reported robust accuracy is then a true upper bound. Finished chunks are on disk, and so
is what a long one has come to; a repeated call goes on from there and ends with the same numbers.
"""

from __future__ import annotations

import time
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
from hardtack.evaluation.class_subset import class_subset
from hardtack.evaluation.measure import Columns, Measure, join
from hardtack.evaluation.outcome import Evaluation, Subject, identify, recall, summarise
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.survey import Survey
from hardtack.evaluation.surveys import Scene, make_sights
from hardtack.evaluation.trials import make_trials
from hardtack.models.dtypes import names_dtypes
from hardtack.results import ChunkStore, missing_spans


@names_dtypes
def evaluate(
    model: nn.Module,
    data: Dataset | tuple[Tensor, Tensor],
    *,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    subject: Subject | None = None,
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
    trials = make_trials(config, runtime.seed)
    began, home = time.monotonic(), next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        sights = make_sights(config, Scene(model, shape_of(data), runtime.seed))
        identity = identify(model, data, config, trials, sights, runtime, subject or Subject(), kept=folder is not None)
        store = ChunkStore(folder, identity.id) if folder is not None else None
        if store is not None:
            runtime.join()
            runtime.wait()  # until the main process has written what it measured last: all must recall, or none
            if (known := recall(store)) is not None:
                return known
        first = head(data, runtime.torch_device)
        measure: Measure | Survey = (
            Survey(model, sights, config, runtime, like=first[0])
            if sights
            else Measure(model, trials, config, runtime, like=first[0])
        )
        flags = measure.first_checks(*first, classes=getattr(data, "num_classes", None))
        columns, examples = _run_chunks(config, measure, data, store, runtime, quiet=quiet)
        identity = measure.known(identity)
    finally:
        model.to(home)
    where = folder if runtime.is_main else None
    return summarise(identity, columns, examples, flags, where, seconds=time.monotonic() - began)


def _run_chunks(
    config: EvaluationConfig,
    measure: Measure | Survey,
    data: Any,
    store: ChunkStore | None,
    runtime: Runtime,
    *,
    quiet: bool,
) -> tuple[Columns, Columns]:
    """Verdicts and examples of all chunks, computed now or read from disk."""
    sharers = runtime.world_size if store is not None else 1
    size = config.chunk_size or measure.chunk_size(-(-count(data) // sharers))
    runtime.wait()  # all must see the same chunks on disk before one of them adds to it
    missing = missing_spans(store.spans() if store is not None else [], count(data), size)
    runtime.wait()
    mine = missing[runtime.rank % sharers :: sharers]
    made: list[tuple[Columns, Columns]] = []
    title = f"evaluate {config.suite}"
    with Meter(title, total=len(mine), quiet=quiet or not runtime.is_main) as meter:
        for (start, _), (x, y, index) in chunks(data, runtime.torch_device, mine):
            notebook = store.notebook(start, len(x)) if store is not None else None
            columns, pictures, kept = measure(
                x, y, index, wanted=max(0, config.examples - start), notebook=notebook, meter=meter
            )
            if store is None:
                made.append((columns, pictures))
            else:
                store.write(start, columns, pictures, kept if config.keep else None)
            meter.advance(len(x))
    if store is None:
        return join([columns for columns, _ in made]), join([pictures for _, pictures in made if pictures])
    runtime.wait()
    columns, pictures = store.read_all(), store.read_arrays()
    if len(columns["index"]) != count(data):
        raise UserError(f"{store.folder} lacks chunks of other processes: all of them must write to one disk")
    runtime.wait()
    return columns, pictures
