"""Running an analysis: its rows as pieces of an engine job, then its conclusion, kept in the run folder."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hardtack
from hardtack.analysis.analysis import (
    Analysis,
    AnalysisContext,
    Arrays,
    Conclusion,
    Data,
    OverImages,
    RowWork,
    choose_images,
)
from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.input_guard import CHANGES_INPUT, InputGuard, guard_input
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.printable import printable
from hardtack.base.progress import Meter
from hardtack.base.registry import analyses
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.given import take
from hardtack.data.spans import head
from hardtack.data.travel import served
from hardtack.engine import (
    Executor,
    Job,
    MemoryStore,
    Notebook,
    PieceResult,
    PieceStore,
    Span,
    Store,
    choose_executor,
    job_id,
    run_job,
)
from hardtack.evaluation.identity import contents
from hardtack.evaluation.provenance import Provenance, device_name, versions
from hardtack.evaluation.sanity import Flag, check_behaviour, check_inputs, flag
from hardtack.models.dtypes import takes_model
from hardtack.models.first_images import first_logits
from hardtack.models.given import check_kept, takes_one_channel
from hardtack.results import (
    ANALYSIS,
    Finding,
    Result,
    append_results,
    finding_path,
    read_finding,
    read_results,
    write_finding,
    write_verdicts,
)
from hardtack.results.agreement import check_evaluation


@takes_model
def analyze(
    model: nn.Module,
    data: Any = None,
    name: str | Analysis = "sparsity",
    *,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    provenance: Provenance | None = None,
    quiet: bool = False,
    executor: Executor | None = None,
    **settings: Any,
) -> Finding:
    """One analysis of a model: `analyze(model, (x, y), "jacobian", top=3)`; `hardtack list analyses` names them.

    With `folder` (a run) pieces, arrays and results are kept there, and a killed analysis goes on when it is repeated;
    under torchrun its pieces are shared out between the processes. `executor`: where the pieces are computed.
    """
    analysis = choose(analyses, {"name": name, **settings} if isinstance(name, str) else name)
    if not isinstance(analysis, Analysis):
        kind = type(analysis).__name__
        raise UserError(f"{kind} is no analysis: derive it from hardtack.analysis.Analysis (or OverImages for images)")
    check_kept(model, folder)
    if data is not None:
        most = max(analysis.n, _CHECKED) if isinstance(analysis, OverImages) else None
        most = None if isinstance(data, Dataset | tuple) else most  # of others no more are read than are used
        data = take(data, n=most, takes_grey=partial(takes_one_channel, model))
    runtime, provenance = runtime or Runtime(), provenance or Provenance()
    home = next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        context = AnalysisContext(model=model, data=data, runtime=runtime, name=provenance.model)
        job = AnalysisJob(analysis, context, folder=folder, provenance=provenance)
        executor = executor or choose_executor(runtime, shared=folder is not None)
        finding: Finding = run_job(job, store=job.store, executor=executor, quiet=quiet or not runtime.is_main)
    finally:
        model.to(home)
    return finding


class AnalysisJob(Job):
    """An analysis as a job of the engine: its rows are those of the analysis' work."""

    guard = InputGuard()  # replaced while the model is called

    def __init__(
        self, analysis: Analysis, context: AnalysisContext, *, folder: str | Path | None, provenance: Provenance
    ) -> None:
        self.analysis, self.whole, self.provenance, self.folder = analysis, context, provenance, folder
        self.began = time.monotonic()
        self.context = choose_images(context, analysis)
        _check_weights(context.model)
        _check_images(self.context)
        self.id = _identify(self.context, analysis, kept=folder is not None)
        self.title = f"analyze {self.id.rpartition('-')[0]}"
        self.store: Store = MemoryStore()
        if folder is not None:
            self.store = PieceStore(Path(folder) / "analysis", self.id, columns=False)
            self.context = dataclasses.replace(self.context, folder=Path(folder), scratch=self.store.scratch)

    def recall(self) -> Finding | None:
        return None if self.folder is None else _recall(Path(self.folder), self.id, is_main=self.whole.runtime.is_main)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        model, runtime = self.whole.model.to(self.whole.device), self.whole.runtime
        guarded = guard_input(model) if self.analysis.asks_model else contextlib.nullcontext(InputGuard())
        with preserve_state(model), runtime.arithmetic("fp32"), guarded as self.guard:
            yield

    def travels(self, serve: Callable[[Any], Any]) -> AnalysisJob:
        job = copy.copy(self)
        job.whole = dataclasses.replace(self.whole, data=served(self.whole.data, serve))
        data = served(self.context.data, serve)
        job.context = dataclasses.replace(self.context, data=data, folder=None, scratch=None)
        return job

    def begin(self) -> None:
        flags = _check_answers(self.whole) if self.analysis.asks_model else []
        flags += [flag("red", "changes_input", CHANGES_INPUT)] if self.guard.changed else []
        self.provenance = dataclasses.replace(self.provenance, flags=(*self.provenance.flags, *flags))
        self.work: RowWork = self.analysis.begin(self.context)
        self.total = self.work.length

    def piece_size(self, most: int) -> int:
        return self.work.at_once  # whatever the number of workers: the last bits depend on what is computed together

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        return PieceResult(arrays=self.work.rows(span.start, span.stop))

    def finish(self, columns: Arrays, arrays: Arrays, *, is_main: bool) -> Finding:
        conclusion = _finite(self.work.conclude(arrays))
        about = _about(self.context, self.provenance, seconds=time.monotonic() - self.began)
        arrays = {**arrays, **conclusion.arrays}
        folder = self.folder if is_main else None
        return _keep(self.id, self.analysis, about, arrays, conclusion, self.provenance, folder)


_CHECKED = 4  # images on which the model's answers are checked, whatever the analysis uses


def _check_weights(model: nn.Module) -> None:
    """Refuse weights that are NaN or infinite: every number about the model would be wrong."""
    wrong = [name for name, value in model.named_parameters() if not bool(value.isfinite().all())]
    wrong += [name for name, value in model.named_buffers() if bool(value.isnan().any())]  # a mask may be infinite
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise UserError(f"weights of this model are not finite, in {wrong[0]}{more}: it cannot be analysed")


def _check_images(context: AnalysisContext) -> None:
    """Check all images given as tensors, and the first images of a data set (which is in [0,1] by contract)."""
    if context.data is None:
        return
    x, y = context.data if isinstance(context.data, tuple) else head(context.data, context.device)
    check_inputs(x, y, num_classes=getattr(context.model, "num_classes", None))


def _check_answers(context: AnalysisContext) -> list[Flag]:
    """Refuse NaN or infinite logits; flag logits that change between two passes or with the batch."""
    x, _ = head(context.data, context.device, first=_CHECKED)
    with torch.no_grad():
        logits = first_logits(context.model, x).float()
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits: it cannot be analysed")
    return check_behaviour(context.model, x, logits)


def _identify(context: AnalysisContext, analysis: Analysis, *, kept: bool) -> str:
    """A name that changes with everything that could change the arrays, and with nothing else."""
    left_out = {key for key in analysis.later_settings if not plain(analysis)[key]}
    settings = {key: value for key, value in plain(analysis).items() if key not in ("batch_size", *left_out)}
    name = settings.get("name") or type(analysis).__name__.lower()
    decisive = [
        settings, _described(context), context.seed, hardtack.__version__, *analysis.fingerprints(),
        *(contents(context.model, _looked_at(context.data)).values() if kept else ()),
    ]  # fmt: skip
    return job_id(name, decisive)


def _looked_at(data: Data | None) -> Any:
    """What the digest is taken of: for images in memory only the analysed ones, not the rest of the data set."""
    if data is None:
        return torch.empty(0), torch.empty(0)
    if isinstance(data, tuple) or (pixels := getattr(data.store, "pixels", None)) is None:
        return data
    return pixels[data.rows], torch.stack([data.labels, data.index])


def _described(context: AnalysisContext) -> tuple[str, str]:
    if context.data is None:
        return "", ""
    if isinstance(context.data, tuple):
        return "tensors", f"{context.count} images given as tensors"
    return f"{context.data.name}/{context.data.split}", context.data.description


def _about(context: AnalysisContext, provenance: Provenance, *, seconds: float) -> dict[str, Any]:
    data, description = _described(context)
    return {
        "run": provenance.run, "model": provenance.model, "checkpoint": provenance.checkpoint, "data": data,
        "data_description": description, "n": context.count, "classes": list(context.classes), "seed": context.seed,
        "device": device_name(context.runtime), "seconds": round(seconds, 3), "words": list(provenance.words),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _keep(
    id: str,
    analysis: Any,
    about: dict[str, Any],
    arrays: Arrays,
    conclusion: Conclusion,
    provenance: Provenance,
    folder: str | Path | None,
) -> Finding:
    settings = plain(analysis)
    name = str(settings.pop("name", id.rpartition("-")[0]))
    vectors = {f"value@{s.metric}/{s.column}": s.per_image for s in conclusion.scores if s.per_image is not None}
    rows = f"verdicts/{id}.parquet" if vectors and _per_image(vectors, arrays) else None
    results = [
        Result(
            metric=score.metric, value=score.value, n=score.n, low=score.low, high=score.high,
            interval=score.interval, threat=score.threat, suite=ANALYSIS, attack=name, attack_settings=settings,
            evaluation=id, data=about["data"], data_description=about["data_description"], run=provenance.run,
            model=provenance.model, checkpoint=provenance.checkpoint, weights_sha256=provenance.weights_sha256,
            seed=about["seed"], precision="fp32", device=about["device"], flags=provenance.flags, versions=versions(),
            created=about["created"], seconds=about["seconds"],
            verdicts=rows if score.per_image is not None else None,
            extra={"words": list(provenance.words), **({"column": score.column} if score.column else {})},
        )
        for score in conclusion.scores
    ]  # fmt: skip
    record = {
        "analysis": name, "settings": settings, "about": about, "facts": dict(conclusion.facts),
        "notes": list(conclusion.notes),
    }  # fmt: skip
    if folder is not None:
        if rows:
            write_verdicts(Path(folder) / rows, {"index": arrays["index"], "label": arrays["label"], **vectors})
        append_results(folder, results, replacing=id)
        write_finding(folder, id, record, arrays)
    return Finding(
        id=id, analysis=name, settings=settings, about=about, facts=record["facts"], notes=tuple(conclusion.notes),
        arrays=arrays, results=tuple(results),
    )  # fmt: skip


def _finite(conclusion: Conclusion) -> Conclusion:
    """Only what can be stored: a score that is not finite is left out, and a note says so."""
    kept = [score for score in conclusion.scores if math.isfinite(score.value)]
    lost = [" ".join(filter(None, (s.metric, s.column))) for s in conclusion.scores if not math.isfinite(s.value)]
    notes = [f"{', '.join(lost)} is not a finite number and was left out"] if lost else []
    scores = [dataclasses.replace(score, low=_or_none(score.low), high=_or_none(score.high)) for score in kept]
    facts = _without_nan(plain(conclusion.facts))
    return dataclasses.replace(conclusion, scores=scores, facts=facts, notes=[*conclusion.notes, *notes])


def _or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return _or_none(value) if isinstance(value, float) else value


def _per_image(vectors: dict[str, np.ndarray], arrays: Arrays) -> bool:
    """Whether the rows are images with known numbers and labels."""
    lengths = {len(vector) for vector in vectors.values()}
    return "index" in arrays and "label" in arrays and lengths == {len(arrays["index"])}


def _recall(folder: Path, id: str, *, is_main: bool) -> Finding | None:
    """The finding of an earlier call; one whose arrays are missing, or whose numbers its files contradict, is not."""
    path = finding_path(folder, id)
    if not path.exists():
        return None
    try:
        finding = read_finding(path, read_results(folder))
    except UserError:
        return None
    wrong = check_evaluation(folder, finding.results).wrong
    if wrong and is_main:
        print(printable(f"{folder / 'results.jsonl'}: {id}: {wrong[0]}; the analysis is repeated"), file=sys.stderr)
    return None if wrong else finding
