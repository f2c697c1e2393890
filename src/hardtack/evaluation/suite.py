"""Measuring the same way every time: `evaluate` gives a model's accuracy, clean and attacked, image by image.

Images go through in pieces. In each piece the model first predicts the clean images in fp32. Then every attack of the
suite runs on the images that are still correctly classified, and each success is confirmed in fp32 on the very tensor
that was found (inside the ball, inside the box, misclassified). A reported robust accuracy is therefore always a true
upper bound, whatever the search did. Finished pieces are on disk, and so is the state of a long one: a repeated call
goes on from there and ends with the same numbers (`hardtack.engine`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.input_guard import CHANGES_INPUT, InputGuard, guard_input
from hardtack.base.arrays import read_arrays
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.base.printable import printable
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.data import Dataset
from hardtack.data.given import take
from hardtack.data.spans import at_positions, chunks, count, head, original_of, shape_of
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
    run_job,
)
from hardtack.evaluation.audit import Auditor, AuditReport
from hardtack.evaluation.class_subset import class_subset
from hardtack.evaluation.consistency import merge_flags
from hardtack.evaluation.evaluation import Evaluation, recall_evaluation
from hardtack.evaluation.identity import identify
from hardtack.evaluation.measure import Columns, Measure
from hardtack.evaluation.measure_views import ViewMeasure
from hardtack.evaluation.older_records import predictions_agree
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.sanity import Flag, flag, search_flags
from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings
from hardtack.evaluation.suites import SuiteContext, make_suite
from hardtack.evaluation.summary import summarise
from hardtack.evaluation.threat_stages import AuditPlan
from hardtack.models.dtypes import takes_model
from hardtack.models.given import check_kept, takes_one_channel
from hardtack.results import Result, adversarial_folder


@takes_model
def evaluate(
    model: nn.Module,
    data: Any,
    *,
    n: int | None = None,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    provenance: Provenance | None = None,
    quiet: bool = False,
    consistency: bool = True,
    executor: Executor | None = None,
    **settings: Any,
) -> Evaluation:
    """Evaluate a model on data; settings are EvaluationConfig's.

    `data` is a pair (x, y) of tensors or arrays, a DataLoader, a data set of torch, of Hugging Face or of `load_data`,
    or the name of one (docs/python.md says what their shapes and types mean); `n`: only its first images.

    With `folder` (a run) pieces, verdicts, examples and results are kept there. A killed evaluation goes on when the
    call is repeated, and under torchrun the processes share the pieces. Without a folder every process measures
    everything. `consistency=False` leaves out the comparison of the model's answers under other conditions
    (evaluation/consistency.py), for numbers that nobody reports, such as those of every epoch. `executor`: where the
    pieces are computed (default: in this process, or shared by the processes of torchrun).
    """
    check_kept(model, folder)
    model, data = class_subset(model, take(data, n=n, takes_grey=partial(takes_one_channel, model)))
    config = config or build(EvaluationConfig, gather_suite_settings(settings))
    runtime = runtime or Runtime()
    home = next(iter(model.parameters()), torch.empty(0)).device
    try:
        job = SuiteJob(model, data, config, runtime=runtime, folder=folder, provenance=provenance or Provenance())
        executor = executor or choose_executor(runtime, shared=folder is not None)
        job.consistent = consistency
        job.executor, job.quiet = executor, quiet or not runtime.is_main
        result: Evaluation = run_job(job, store=job.store, executor=executor, quiet=job.quiet)
    finally:
        model.to(home)
    return result


class SuiteJob(Job):
    """One suite as a job of the engine: its rows are the images."""

    unit = "img"
    guard = InputGuard()  # replaced while the model is called
    consistent = True  # whether the model's answers are compared under other conditions

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
        suite = make_suite(config)
        self.trials = suite.threat_stages(config, runtime.seed)
        self.views = suite.views(config, SuiteContext(model, shape_of(data), runtime.seed, original_of(data)))
        if self.views and shape_of(data)[0] == 1:
            raise UserError(
                f"suite={config.suite} shows images of three channels, and this model takes grey ones: give it a first "
                "layer that turns three channels into one, and colour images"
            )
        self.identity = identify(
            model, data, config, suite=suite, trials=self.trials, views=self.views, runtime=runtime,
            provenance=provenance, kept=folder is not None,
        )  # fmt: skip
        self.process = ""  # where pieces are measured: begin gives every process another one
        self.rejected = False  # stored results that do not agree with their evidence
        self.leads: dict[int, Columns] = {}  # of predictions, by the first row of the piece
        self.executor, self.quiet = Executor(), True
        self.store: Store = MemoryStore()
        if folder is not None:
            self.store = PieceStore(Path(folder) / "verdicts", self.identity.id, root=folder)

    def recall(self) -> Evaluation | None:
        """The stored evaluation, if its results agree with their evidence; else a line says what does not."""
        if self.folder is None:
            return None
        evaluation, problem = recall_evaluation(self.folder, self.identity.id, self.recompute)
        if problem and not self.rejected and self.runtime.is_main:
            print(printable(f"{problem}; the model is evaluated again"), file=sys.stderr)
        self.rejected = bool(problem)
        return evaluation or self._recall_older()

    def _recall_older(self) -> Evaluation | None:
        """A record of version 0.1.0, whose id has no digest of these images, if the model repeats its predictions."""
        if self.folder is None or self.identity.older_id is None:
            return None
        older, _ = recall_evaluation(self.folder, self.identity.older_id, self.recompute_older)
        if older is None:
            return None
        model = self.model.to(self.runtime.torch_device)
        return older if predictions_agree(older, model, self.data, self.views, self.runtime) else None

    def recompute(self, columns: Columns) -> tuple[Result, ...]:
        """The results that verdict columns give, without the flags that are found while measuring."""
        return summarise(self.identity, columns, {}, [], None, seconds=0.0).results

    def recompute_older(self, columns: Columns) -> tuple[Result, ...]:
        """The same, under the id of version 0.1.0."""
        identity = dataclasses.replace(self.identity, id=self.identity.older_id or self.identity.id)
        return summarise(identity, columns, {}, [], None, seconds=0.0).results

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """The model is moved to the device here and not before: a result that is recalled wakes no GPU."""
        with guard_input(self.model.to(self.runtime.torch_device)) as self.guard:
            yield

    def travels(self, serve: Callable[[Any], Any]) -> SuiteJob:
        job = copy.copy(self)
        job.data = served(self.data, serve)
        if self.views and job.data is not self.data:  # views may hold the stored images
            context = SuiteContext(self.model, shape_of(job.data), self.runtime.seed, original_of(job.data))
            job.views = make_suite(self.config).views(self.config, context)
        return job

    def begin(self) -> None:
        self.process = uuid.uuid4().hex
        x, y = head(self.data, self.runtime.torch_device)
        self.measure: Measure | ViewMeasure = (
            ViewMeasure(self.model, self.views, self.config, self.runtime, like=x)
            if self.views
            else Measure(self.model, self.trials, self.config, self.runtime, like=x)
        )
        self.flags = self.measure.first_checks(x, y, classes=getattr(self.data, "num_classes", None) or None)
        self._check_sample()
        if isinstance(self.measure, ViewMeasure):  # fp32 decides what a model with a red flag predicts
            red = any(item["level"] == "red" for item in self.flags)
            self.measure.may_predict = self.measure.consistency.active and not red
        self.random = any(item["code"] == "random_outputs" for item in self.flags) or (
            isinstance(self.measure, Measure) and self.measure.verifier.votes > 1
        )

    def _check_sample(self) -> None:
        """Compare the answers to a random sample of all images under the conditions of the evaluation."""
        if self.guard.changed:
            self.flags = merge_flags(self.flags, [flag("red", "changes_input", CHANGES_INPUT)])
        consistency = self.measure.consistency
        consistency.active &= self.consistent and not any(known["code"] == "random_outputs" for known in self.flags)
        positions = consistency.sample(self.total, math.prod(shape_of(self.data)))
        self.sample = at_positions(self.data, self.runtime.torch_device, positions)
        radius = max(
            (trial.threat.radius if trial.threat.norm == "linf" else 8 / 255 for trial in self.trials), default=0
        )
        self.flags = merge_flags(self.flags, consistency.before(self.sample[0], radius=radius, total=self.total))

    def piece_size(self, most: int) -> int:
        if self.rejected and self.folder is not None and self.executor.is_main and not self.store.spans():
            # images of the rejected verdicts must not stay beside the new ones
            shutil.rmtree(adversarial_folder(self.folder, self.identity.id), ignore_errors=True)
        return self.config.chunk_size or self.measure.chunk_size(most)

    def inputs(self, spans: Sequence[Span]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for _, images in chunks(self.data, self.runtime.torch_device, spans):
            yield images

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        wanted, before = max(0, self.config.examples - span.start), dict(self.measure.seconds)
        columns, examples, evidence = self.measure(*inputs, wanted=wanted, notebook=notebook, meter=meter)
        files = {}
        if self.config.keep and evidence is not None and len(evidence["index"]):
            files[f"adversarial/{self.identity.id}/{span.start:08d}.npz"] = evidence
        if isinstance(self.measure, ViewMeasure) and self.measure.piece_leads:
            files[self._leads_file(span)] = self.measure.piece_leads
        seconds = {name: value - before.get(name, 0.0) for name, value in self.measure.seconds.items()}
        facts = {"process": self.process, "precision": self.measure.precision, "seconds": seconds}
        report = {"flags": list(self.measure.piece_flags), **facts}
        return PieceResult(columns=columns, arrays=examples, files=files, report=report)

    def collect(self, span: Span, result: PieceResult) -> None:
        """Keep the flags of a piece, and what another process says about its search."""
        report = result.report
        if not _are_flags(report["flags"]) or report["precision"] not in get_args(SearchPrecision):
            raise ValueError(f"its flags or its precision {report['precision']!r} make no sense")
        self._keep_flags(span, report["flags"])
        if leads := result.files.get(self._leads_file(span)):
            assert not isinstance(leads, bytes)
            self.leads[span.start] = dict(leads)
        if report["process"] != self.process:
            self.measure.note_search(report["precision"], report["seconds"])

    def finish(self, columns: Columns, arrays: Columns, *, is_main: bool) -> Evaluation:
        folder = self.folder if is_main else None
        auditor = self._auditor()
        if isinstance(self.measure, ViewMeasure):
            columns = self.measure.look_again(columns, self._all_leads(), self.data)
        reports = self._audit(auditor, columns) if self.trials else []
        columns = auditor.columns or columns
        flags = self._all_flags(columns) if is_main else self.flags
        flags = merge_flags(flags, [flag for report in reports for flag in report.flags])
        identity = self.measure.complete(self.identity, seconds=auditor.seconds)
        facts = [report.facts for report in reports if report.facts]
        seconds = time.monotonic() - self.began
        return summarise(identity, columns, auditor.with_examples(arrays), flags, folder, seconds=seconds, audit=facts)

    def _leads_file(self, span: Span) -> str:
        """Where the leads of a piece are kept until all pieces are finished."""
        return f"verdicts/.{self.identity.id}/scratch/{span}.leads.npz"

    def _all_leads(self) -> dict[int, Columns]:
        """The leads of every piece by its first row, also of those that another process measured."""
        if not isinstance(self.store, PieceStore):
            return self.leads
        return {int(path.name.split("-")[0]): _read_leads(path) for path in self.store.scratch.glob("*.leads.npz")}

    def _auditor(self) -> Auditor:
        home = self.store.scratch if isinstance(self.store, PieceStore) else None
        return Auditor(
            self.model, self.data, self.config, self.runtime, executor=self.executor, home=home, folder=self.folder,
            id=self.identity.id, quiet=self.quiet,
        )  # fmt: skip

    def _audit(self, auditor: Auditor, columns: Columns) -> list[AuditReport]:
        """Look at what remains correct at every threat; of growing radii, at the largest."""
        auditor.columns, reports = columns, []
        if self.random:
            return []  # differences between two passes of a random model say nothing about its gradient
        red = any(flag["level"] == "red" for flag in search_flags(columns))
        for trial in self.trials[-1:] if self.identity.suite.curve else self.trials:
            plan = trial.audit or AuditPlan(sample=self.config.audit)
            reports.append(auditor.audit(auditor.columns, trial, plan, suspicious=red))
        return reports

    def _keep_flags(self, span: Span, flags: list[Flag]) -> None:
        """Flags of one piece, where they are found again when the evaluation is resumed or another process ends it."""
        self.flags = merge_flags(self.flags, flags)
        if flags and isinstance(self.store, PieceStore):
            write_text(self.store.scratch / f"{span}.flags.json", json.dumps(flags))

    def _all_flags(self, columns: Columns) -> list[Flag]:
        """Flags of the beginning, of all pieces, and of the sample that is compared at the end."""
        flags = list(self.flags)
        if isinstance(self.store, PieceStore):
            for path in sorted(self.store.scratch.glob("*.flags.json")):
                flags = merge_flags(flags, _read_flags(path))
        x, y, positions = self.sample
        predictions = {name: columns[name][positions.numpy()] for name in ("clean_prediction", "clean_confidence")}
        return merge_flags(flags, self.measure.consistency.after(x, y, predictions))


def _read_flags(path: Path) -> list[Flag]:
    """The flags that a finished piece noted; the file may have been changed since."""
    flags = read_json(path)
    if not _are_flags(flags):
        raise UserError(f"{path} is damaged; delete {path.parent.parent} and repeat the command")
    return flags


def _are_flags(flags: Any) -> TypeGuard[list[Flag]]:
    keys = {"level", "code", "message"}
    return isinstance(flags, list) and all(isinstance(flag, dict) and keys <= set(flag) for flag in flags)


def _read_leads(path: Path) -> Columns:
    """The leads that a finished piece noted; the file may have been changed since."""
    try:
        leads = read_arrays(path)
        if leads["rounding"].shape == () and all(np.ndim(lead) == (name != "rounding") for name, lead in leads.items()):
            return leads
    except (UserError, KeyError):
        pass
    raise UserError(f"{path} is damaged; delete {path.parent.parent} and repeat the command")
