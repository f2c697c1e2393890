"""The audit: what remains correct after the attacks is not believed before it was looked at in another way.

When all pieces of an evaluation are finished, a random sample of the images that remain correctly classified at a
threat (the survivors) is

    examined   by the detectors: does the model's gradient tell the truth on these images? (detectors.py)
    attacked   by what the search left out, on the model itself, with fp32 weights and activations (`AuditPlan.stages`)

If nothing is found, the sample bounds what was missed: "with 95 % confidence at most p % of the survivors would be
broken". If an image is broken or a detector fires, the evaluation *escalates*: all survivors are attacked by the
audit's attacks, then, unless these find next to nothing, by the full list (`AuditPlan.escalation`). A plan without a
full list, of a tier whose attacks are fixed, only flags the number.

Sample and decisions are a function of the verdicts and the seed. So they do not depend on pieces, processes or kills.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.autoattack import Stage
from hardtack.base.progress import Meter
from hardtack.base.randomness import permutation
from hardtack.base.runtime import Precision, Runtime
from hardtack.data.spans import chunks
from hardtack.data.travel import served
from hardtack.engine import Executor, Job, MemoryStore, Notebook, PieceResult, PieceStore, Span, Store, run_job
from hardtack.evaluation import detectors
from hardtack.evaluation.measure import Columns, Measure
from hardtack.evaluation.sanity import Flag, flag
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages
from hardtack.results.audit_bound import bound

POINT = 0.01  # errors of the robust accuracy that are worth a flag
_STREAM = 0x61756469


@dataclass
class AuditReport:
    """What the audit of one threat came to; `facts` are stored with the results."""

    facts: dict[str, Any]
    flags: list[Flag]


class Auditor:
    """Audits the columns of the evaluation `id`.

    `home` is the folder for pieces of the audit (None: in memory), `folder` the run folder.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        config: EvaluationConfig,
        runtime: Runtime,
        *,
        executor: Executor,
        home: Path | None,
        folder: str | Path | None,
        id: str,
        quiet: bool,
    ) -> None:
        self.model, self.data, self.config, self.runtime = model, data, config, runtime
        self.executor, self.home, self.folder, self.id, self.quiet = executor, home, folder, id, quiet
        # of the audit's own attacks: on the GPU products of matrices in TF32, all else in fp32
        self.precision: Precision = "tf32" if runtime.torch_device.type == "cuda" else "fp32"
        self.columns: Columns = {}
        self.images: dict[int, np.ndarray] = {}  # the adversarial images of examples that the audit broke, by position
        self.seconds: dict[str, float] = {}

    def audit(self, columns: Columns, trial: ThreatStages, plan: AuditPlan, *, suspicious: bool) -> AuditReport:
        """Audit one threat; `self.columns` are the columns with what was broken. `suspicious`: other flags are red."""
        self.columns = columns
        survivors = np.flatnonzero(columns[f"robust@{trial.threat}"])
        if not len(survivors) or plan.size(len(survivors)) == 0 or trial.threat.eps == 0:
            return AuditReport({}, [])
        sample = self._sample(survivors, plan.size(len(survivors)))
        found = self._attack(sample, trial, plan.stages, name="sample", precision=self.precision, examine=True)
        findings = _findings(found)
        broken = int((~found[f"robust@{trial.threat}"]).sum()) if plan.stages else 0
        red = findings.flags(trial.threat)
        facts: dict[str, Any] = {
            "threat": str(trial.threat), "survivors": len(survivors), "sample": len(sample), "broken": broken,
            "attacks": [stage.name for stage in plan.stages], **dataclasses.asdict(findings),
        }  # fmt: skip
        del facts["images"]
        if plan.escalation:
            return self._escalate(trial, plan, facts, red, suspicious=suspicious)
        return AuditReport(facts, self._flags_only(trial, facts, red))

    def with_examples(self, arrays: Columns) -> Columns:
        """The example images, with those that only the audit broke."""
        if not self.images or "x_adv" not in arrays:
            return arrays
        result = {name: value.copy() for name, value in arrays.items()}
        for position, image in self.images.items():
            result["x_adv"][position] = image
            for name in ("adversarial_prediction", "size"):
                result[name][position] = self.columns[name][position]
        return result

    # ------------------------------------------------------------ what follows from the sample

    def _escalate(
        self, trial: ThreatStages, plan: AuditPlan, facts: dict[str, Any], red: list[Flag], *, suspicious: bool
    ) -> AuditReport:
        before, name = facts["survivors"], f"robust@{trial.threat}"
        level = "none"
        if facts["broken"] or red or suspicious:
            level = "audit"
            self._attack(
                np.flatnonzero(self.columns[name]), trial, plan.stages, name="survivors", precision=self.precision
            )
            broken = before - int(self.columns[name].sum())
            if red or suspicious or broken > POINT * before:
                level = "full"
                self._attack(
                    np.flatnonzero(self.columns[name]), trial, plan.escalation, name="escalation", precision="fp32"
                )
        left = int(self.columns[name].sum())
        facts |= {"escalation": level, "broken_by_escalation": before - left}
        if level == "none":
            facts |= bound(facts)
        flags, n = [], len(self.columns["index"])
        if before - left > POINT * n:
            message = (
                f"at {trial.threat} the audit broke {before - left} of the {before} images that the search had left "
                "correct: gradients are masked, and a stronger attack may break more"
            )
            flags.append(flag("red", "masked_gradients", f"{message}; {detectors.REMEDY}"))
        if left > POINT * n:
            flags += red
        return AuditReport(facts, flags)

    def _flags_only(self, trial: ThreatStages, facts: dict[str, Any], red: list[Flag]) -> list[Flag]:
        """The number stays what the attacks of the suite found; what the audit knows of it is said."""
        n, survivors, sample, broken = len(self.columns["index"]), facts["survivors"], facts["sample"], facts["broken"]
        facts |= bound(facts) if facts["attacks"] else {}
        flags = list(red) if survivors > POINT * n else []
        if broken:
            sure = broken > 1 and broken / sample * survivors > POINT * n
            message = f"at {trial.threat} the audit broke {broken} of {sample} sampled images that remain correct"
            message += ": the accuracy under attack is too high; tier=max attacks all of them so"
            flags.append(flag("red" if sure else "yellow", "audit_failed", message))
        return flags

    # ------------------------------------------------------------ attacking survivors

    def _sample(self, survivors: np.ndarray, size: int) -> np.ndarray:
        return draw_sample(survivors, size, self.runtime.seed)

    def _attack(
        self,
        rows: np.ndarray,
        trial: ThreatStages,
        stages: Sequence[Stage],
        *,
        name: str,
        precision: Precision,
        examine: bool = False,
    ) -> Columns:
        """Attack the images at these positions, and write what was broken into the columns, if that counts."""
        if not len(rows):
            return {}
        attacks = ThreatStages(threat=trial.threat, stages=tuple(stages))
        id = f"{self.id}.{name}.{str(trial.threat).replace(':', '').replace('/', '_')}"
        job = SurvivorsJob(self, rows, attacks, id=id, examine=examine, precision=precision)
        store: Store = MemoryStore()
        if self.home is not None:
            store = _KeptPieces(self.home, id, root=self.folder)
        found: Columns = run_job(job, store=store, executor=self.executor, quiet=self.quiet)
        return found

    def count(self, rows: np.ndarray, found: Columns, trial: ThreatStages, images: Columns) -> None:
        """Write what attacks on the images at `rows` broke into the columns."""
        self.columns = merged(self.columns, rows, found, str(trial.threat))
        shown = zip(images.get("position", ()), images.get("x_adv", ()), strict=True)
        self.images |= {int(position): image for position, image in shown}


class _KeptPieces(PieceStore):
    """Pieces that stay until the whole evaluation is finished: what was audited is not audited again after a kill."""

    def discard(self) -> None:
        pass


class SurvivorsJob(Job):
    """Attacks on the images at some positions of a data set, as a job of the engine."""

    unit = "img"

    def __init__(
        self,
        auditor: Auditor,
        rows: np.ndarray,
        trial: ThreatStages,
        *,
        id: str,
        examine: bool,
        precision: Precision,
    ) -> None:
        self.precision = precision
        self.auditor, self.rows, self.trial, self.id, self.examine = auditor, rows, trial, id, examine
        self.total, self.title = len(rows), "audit"
        self.counts = not examine  # the sample is attacked again with all survivors, if it comes to that

    def travels(self, serve: Callable[[Any], Any]) -> SurvivorsJob:
        job = copy.copy(self)
        job.auditor = copy.copy(self.auditor)
        job.auditor.data = served(self.auditor.data, serve)
        return job

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        self.auditor.model.to(self.auditor.runtime.torch_device)
        yield

    def begin(self) -> None:
        auditor = self.auditor
        like = next(iter(self.inputs([Span(0, min(2, self.total))])))[0]
        self.measure = Measure(
            auditor.model, [self.trial], auditor.config, auditor.runtime, like=like, on_the_model=self.precision
        )

    def piece_size(self, most: int) -> int:
        if self.examine:  # one piece: the detectors look at the whole sample
            return self.total
        return self.auditor.config.chunk_size or self.measure.chunk_size(most)

    def inputs(self, spans: Sequence[Span]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        device, rows = self.auditor.runtime.torch_device, torch.from_numpy(self.rows)
        for _, images in chunks(self.auditor.data, device, spans, rows=rows):
            yield images

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        columns, _, evidence = self.measure(*inputs, wanted=0, notebook=notebook, meter=meter)
        x, y, index = inputs
        if self.examine:
            return PieceResult(columns=columns | self._examined(x, y, index))
        positions = dict(zip(index.tolist(), self.rows[span.start : span.stop].tolist(), strict=True))
        files, config = {}, self.auditor.config
        if config.keep and len(evidence["index"]):
            files[f"adversarial/{self.auditor.id}/{self.id.split('.', 1)[1]}-{span.start:08d}.npz"] = evidence
        at = np.array([positions[key] for key in evidence["index"].tolist()], dtype=np.int64)
        shown = at < config.examples
        arrays = {"position": at[shown], "x_adv": evidence["x_adv"][shown].transpose(0, 2, 3, 1)} if shown.any() else {}
        return PieceResult(columns=columns, arrays=arrays, files=files)

    def _examined(self, x: Tensor, y: Tensor, index: Tensor) -> Columns:
        """The findings on the first images of the sample, repeated for every image of it."""
        auditor, part = self.auditor, slice(0, detectors.SAMPLE)
        with preserve_state(auditor.model):
            findings = detectors.examine(
                auditor.model, x[part], y[part], index[part], threat=self.trial.threat, runtime=auditor.runtime,
                batch_size=self.measure.batch_size,
            )  # fmt: skip
        return {name: np.full(len(x), value) for name, value in dataclasses.asdict(findings).items()}

    def finish(self, columns: Columns, arrays: Columns, *, is_main: bool) -> Columns:
        for name, seconds in self.measure.seconds.items():
            label = f"audit: {name}"
            self.auditor.seconds[label] = round(self.auditor.seconds.get(label, 0.0) + seconds, 3)
        if self.counts:
            self.auditor.count(self.rows, columns, self.trial, arrays)
        return columns


def draw_sample(survivors: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The positions of the survivors that an audit looks at, ascending."""
    order = permutation(len(survivors), seed, _STREAM)[:size].numpy()
    return np.sort(survivors[order])


def merged(columns: Columns, rows: np.ndarray, found: Mapping[str, np.ndarray], threat: str) -> Columns:
    """The columns of all images with those of an attack on the images at `rows`, which were robust before it."""
    result = {name: value.copy() for name, value in columns.items()}
    broken = ~found[f"robust@{threat}"]
    down = rows[broken]
    result[f"robust@{threat}"][down] = False
    first = columns["robust"][down]  # no other threat had broken it
    for name in ("broken_by", "broken_at_step", "target", "size", "adversarial_prediction"):
        result[name][down[first]] = found[name][broken][first]
    result["robust"][down] = False
    for name in ("forwards", "backwards"):
        result[name][rows] += found[name]
    for name in ("zero_gradient", "not_finite"):
        result[name][rows] |= found[name]
    for name in ("unverified", "silent_success", "flat_loss"):
        result[name][down] = False
    return result


def _findings(found: Columns) -> detectors.Findings:
    names = ("agreement", "descent", "unconstrained", "stability")
    return detectors.Findings(images=int(found["images"][0]), **{name: float(found[name][0]) for name in names})
