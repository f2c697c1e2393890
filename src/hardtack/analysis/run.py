"""Conducting an analysis: its rows in pieces that survive a kill, then its conclusion, kept in the run folder."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hardtack
from hardtack.analysis.analysis import Analysis, Arrays, Conclusion, Data, Scene, Work, asks_model, settled
from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.registry import analyses
from hardtack.base.runtime import Runtime
from hardtack.data.spans import check_pair, head
from hardtack.engine import (
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
from hardtack.evaluation import Subject
from hardtack.evaluation.outcome import contents, device_name, versions
from hardtack.evaluation.sanity import Flag, check_behaviour, check_inputs
from hardtack.models.dtypes import names_dtypes
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


@names_dtypes
def analyze(
    model: nn.Module,
    data: Data | None = None,
    name: str | Analysis = "sparsity",
    *,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    subject: Subject | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finding:
    """One analysis of a model: `analyze(model, (x, y), "jacobian", top=3)`; `hardtack list analyses` names them.

    With `folder` (a run) pieces, arrays and results are kept there, and a killed analysis goes on when it is repeated;
    under torchrun its pieces are shared out between the processes.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"analyze takes a model, found {type(model).__name__}; ht.load_model(NAME) makes one")
    if data is not None:
        check_pair(data)
    analysis = choose(analyses, {"name": name, **settings} if isinstance(name, str) else name)
    runtime = runtime or Runtime()
    home = next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        with preserve_state(model), runtime.arithmetic("fp32"):
            scene = Scene(model=model, data=data, runtime=runtime, name=subject.model if subject else "")
            job = AnalysisJob(analysis, scene, folder=folder, subject=subject or Subject())
            executor = choose_executor(runtime, shared=folder is not None)
            finding: Finding = run_job(job, store=job.store, executor=executor, quiet=quiet or not runtime.is_main)
    finally:
        model.to(home)
    return finding


class AnalysisJob(Job):
    """An analysis as a job of the engine: its rows are those of the analysis' work."""

    def __init__(self, analysis: Any, scene: Scene, *, folder: str | Path | None, subject: Subject) -> None:
        self.analysis, self.whole, self.subject, self.folder = analysis, scene, subject, folder
        self.began = time.monotonic()
        self.scene = settled(scene, analysis)
        _check_weights(scene.model)
        _check_images(self.scene)
        self.id = _identify(self.scene, analysis, kept=folder is not None)
        self.title = f"analyze {self.id.rpartition('-')[0]}"
        self.store: Store = MemoryStore()
        if folder is not None:
            self.store = PieceStore(Path(folder) / "analysis", self.id, columns=False)
            self.scene = dataclasses.replace(self.scene, scratch=self.store.scratch)

    def recall(self) -> Finding | None:
        return None if self.folder is None else _recall(Path(self.folder), self.id)

    def begin(self) -> None:
        flags = _check_answers(self.whole) if asks_model(self.analysis) else []
        self.subject = dataclasses.replace(self.subject, flags=(*self.subject.flags, *flags))
        self.work: Work = self.analysis.begin(self.scene)
        self.total = self.work.length

    def piece_size(self, most: int) -> int:
        return self.work.at_once

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        return PieceResult(arrays=self.work.rows(span.start, span.stop))

    def finish(self, columns: Arrays, arrays: Arrays, *, is_main: bool) -> Finding:
        conclusion = _finite(self.work.conclude(arrays))
        about = _about(self.scene, self.subject, seconds=time.monotonic() - self.began)
        arrays = {**arrays, **conclusion.arrays}
        folder = self.folder if is_main else None
        return _keep(self.id, self.analysis, about, arrays, conclusion, self.subject, folder)


def _check_weights(model: nn.Module) -> None:
    """A weight that is no number makes every number about the model none, or a wrong one."""
    wrong = [name for name, value in model.named_parameters() if not bool(value.isfinite().all())]
    wrong += [name for name, value in model.named_buffers() if bool(value.isnan().any())]  # a mask may be infinite
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise UserError(f"weights of this model are not finite, in {wrong[0]}{more}: it cannot be analysed")


def _check_images(scene: Scene) -> None:
    """Tensors are looked at as a whole, of a data set the first images: it is in [0,1] as it comes."""
    if scene.data is None:
        return
    x, y = scene.data if isinstance(scene.data, tuple) else head(scene.data, scene.device)
    check_inputs(x, y, num_classes=getattr(scene.model, "num_classes", None))


def _check_answers(scene: Scene) -> list[Flag]:
    """Refuses answers that are no numbers; flags for those that change by themselves or with the batch."""
    x, _ = head(scene.data, scene.device, first=4)
    with torch.no_grad():
        logits = scene.model(x).float()
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits: it cannot be analysed")
    return check_behaviour(scene.model, x, logits)


def _identify(scene: Scene, analysis: Any, *, kept: bool) -> str:
    """A name that changes with everything that could change the arrays, and with nothing else."""
    settings = {key: value for key, value in plain(analysis).items() if key != "batch_size"}
    name = settings.get("name") or type(analysis).__name__.lower()
    files = analysis.fingerprints() if hasattr(analysis, "fingerprints") else ()
    decisive = [
        settings, _described(scene), scene.seed, hardtack.__version__, *files,
        *(contents(scene.model, _looked_at(scene.data)) if kept else ()),
    ]  # fmt: skip
    return job_id(name, decisive)


def _looked_at(data: Data | None) -> Any:
    """What a digest is taken of: of images that lie in memory these alone, whichever others lie beside them."""
    if data is None:
        return torch.empty(0), torch.empty(0)
    if isinstance(data, tuple) or (pixels := getattr(data.store, "pixels", None)) is None:
        return data
    return pixels[data.rows], torch.stack([data.labels, data.index])


def _described(scene: Scene) -> tuple[str, str]:
    if scene.data is None:
        return "", ""
    if isinstance(scene.data, tuple):
        return "tensors", f"{scene.count} images given as tensors"
    return f"{scene.data.name}/{scene.data.split}", scene.data.description


def _about(scene: Scene, subject: Subject, *, seconds: float) -> dict[str, Any]:
    data, description = _described(scene)
    return {
        "run": subject.run, "model": subject.model, "checkpoint": subject.checkpoint, "data": data,
        "data_description": description, "n": scene.count, "classes": list(scene.classes), "seed": scene.seed,
        "device": device_name(scene.runtime), "seconds": round(seconds, 3), "words": list(subject.words),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _keep(
    id: str,
    analysis: Any,
    about: dict[str, Any],
    arrays: Arrays,
    conclusion: Conclusion,
    subject: Subject,
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
            evaluation=id, data=about["data"], data_description=about["data_description"], run=subject.run,
            model=subject.model, checkpoint=subject.checkpoint, weights_sha256=subject.weights_sha256,
            seed=about["seed"], precision="fp32", device=about["device"], flags=subject.flags, versions=versions(),
            created=about["created"], seconds=about["seconds"],
            verdicts=rows if score.per_image is not None else None,
            extra={"words": list(subject.words), **({"column": score.column} if score.column else {})},
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
        append_results(folder, results)
        write_finding(folder, id, record, arrays)
    return Finding(
        id=id, analysis=name, settings=settings, about=about, facts=record["facts"], notes=tuple(conclusion.notes),
        arrays=arrays, results=tuple(results),
    )  # fmt: skip


def _finite(conclusion: Conclusion) -> Conclusion:
    """What can be written down: a score that is no number is left out, and said."""
    kept = [score for score in conclusion.scores if math.isfinite(score.value)]
    lost = [" ".join(filter(None, (s.metric, s.column))) for s in conclusion.scores if not math.isfinite(s.value)]
    said = [f"{', '.join(lost)} came out as no finite number, and is left out"] if lost else []
    known = [dataclasses.replace(score, low=_or_none(score.low), high=_or_none(score.high)) for score in kept]
    facts = _without_nan(plain(conclusion.facts))
    return dataclasses.replace(conclusion, scores=known, facts=facts, notes=[*conclusion.notes, *said])


def _or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return _or_none(value) if isinstance(value, float) else value


def _per_image(vectors: dict[str, np.ndarray], arrays: Arrays) -> bool:
    """Whether the rows were images, whose numbers and labels are known."""
    lengths = {len(vector) for vector in vectors.values()}
    return "index" in arrays and "label" in arrays and lengths == {len(arrays["index"])}


def _recall(folder: Path, id: str) -> Finding | None:
    """What was found before; a finding that has lost its arrays is computed again."""
    path = finding_path(folder, id)
    if not path.exists():
        return None
    try:
        return read_finding(path, read_results(folder))
    except UserError:
        return None
