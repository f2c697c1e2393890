"""One piece of an evaluation: clean predictions, then one attack run per trial, all in one verdict table."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import AttackRun, RunProgress
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.fast_copy import search_model
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.engine import Notebook
from hardtack.evaluation.consistency import Consistency
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, fallbacks, flag, look_first
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import search_precision, votes
from hardtack.evaluation.threat_stages import ThreatStages, default_batch
from hardtack.evaluation.views import clean_columns

Columns = dict[str, np.ndarray]
NOTE_EVERY_S = 20.0
_RESIDENT_BYTES = 2**28  # of images that a piece of a pooled suite may hold


class Measure:
    """Measures piece after piece. `like` are a few of the images, from which shapes are taken.

    `on_the_model`: attacks search on the model itself in this precision, not on a copy, whatever the suite does.
    """

    def __init__(
        self,
        model: nn.Module,
        trials: list[ThreatStages],
        config: EvaluationConfig,
        runtime: Runtime,
        *,
        like: Tensor,
        on_the_model: SearchPrecision | None = None,
    ) -> None:
        self.model, self.config, self.runtime, self.on_the_model = model, config, runtime, on_the_model
        self.trials, self._notes = _settled(trials, model, like)
        self.shape = tuple(like.shape[1:])
        self.batch_size = config.batch_size or default_batch(self.shape, runtime.torch_device.type, pooled=self.pooled)
        self.verifier = Verifier(model, runtime, votes=votes(config), batch_size=self.batch_size)
        self.precision: SearchPrecision = on_the_model or search_precision(config, runtime, like[0].numel())
        self.consistency = Consistency(
            model, runtime, batch_size=self.batch_size, precision=self.precision, attacks=bool(trials),
            random_expected=self.verifier.votes > 1,
        )  # fmt: skip
        self.piece_flags: list[Flag] = []  # of the last piece
        self._pool: Pool | None = None
        self.seconds: dict[str, float] = {}  # by attack, in this process

    @property
    def pooled(self) -> bool:
        return any(stage.attack.pooled for trial in self.trials for stage in trial.stages)

    def chunk_size(self, most: int) -> int:
        return piece_rows(self.shape, self.batch_size, self.runtime, pooled=self.pooled, most=most)

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, Columns]:
        """Verdict columns of the piece, its first `wanted` images with their adversarial ones, and all evidence."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        with preserve_state(self.model):
            clean = self.verifier.logits(x)
            check_logits(clean, y, votes=self.verifier.votes)
            table = self._run_trials(AttackInputs(x, y, index, clean), notebook, meter)
            attacked = (table.x_adv, table.adversarial_prediction) if self.trials else None
            self.piece_flags = self.consistency.piece(x, index, clean, attacked=attacked)
        columns = self._columns(table)
        shown = slice(0, min(wanted, len(x)))
        pictures = {"x": x, "x_adv": table.x_adv} if shown.stop else {}
        examples = {name: value[shown].permute(0, 2, 3, 1).cpu().numpy() for name, value in pictures.items()}
        examples |= {name: columns[name][shown] for name in columns if name in _SHOWN and shown.stop}
        return columns, examples, self._evidence(table)

    def _run_trials(self, inputs: AttackInputs, notebook: Notebook | None, meter: Meter) -> VerdictTable:
        table = VerdictTable(inputs, trials=len(self.trials))
        notes = _Notes(notebook, table)
        for number, trial in enumerate(self.trials[notes.trial :], start=notes.trial):
            stages, resumes = list(trial.stages), number == notes.trial and notes.exist
            if not resumes:
                table.begin_trial(number, follows=trial.follows)
            first, kept = (notes.stage, notes.attempts) if resumes else (0, None)
            attack_run = AttackRun(table, stages, trial=number, first=first, kept=kept)
            attack_run.run(self.model, self.pool(inputs), self.verifier, self._teller(number, notes, meter))
            table.finish_trial(number, trial.threat)
            for name, seconds in attack_run.seconds.items():
                self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)
        return table

    def pool(self, inputs: AttackInputs) -> Pool:
        if self._pool is None:
            model, arithmetic = self.model, self.precision
            if self.pooled and not self.on_the_model:
                model, arithmetic, self.precision = search_model(self.model, self.runtime, self.precision, inputs.x[:8])
            every = 5 if self.runtime.torch_device.type == "cuda" else 2
            compile_after_s = 40.0 if self.runtime.captures and self.precision != "fp32" else None
            compile_after_s = 0.0 if self.runtime.compile else compile_after_s
            self._pool = Pool(
                model, self.runtime, self.batch_size, self.verifier, arithmetic, coarse=self.precision,
                compile_after_s=compile_after_s, every=every,
            )  # fmt: skip
        return self._pool

    def _teller(self, trial: int, notes: _Notes, meter: Meter) -> Any:
        def tell(progress: RunProgress) -> None:
            done = (trial + progress.share) / len(self.trials)
            images = len(notes.table.inputs.y)
            meter.note(f"{progress.name}: {progress.remaining} of {images} images still correct", done)
            notes.write(trial, progress)

        return tell

    def _columns(self, table: VerdictTable) -> Columns:
        """The columns of the parquet file: verdicts by threat, then by image, then the clean predictions."""
        verdicts: dict[str, Tensor] = {}
        for number, trial in enumerate(self.trials):
            for radius in trial.radii:
                verdicts[f"robust@{radius}"] = table.correct & ~table.broken_within(radius.radius)
            verdicts[f"robust@{trial.threat}"] = table.remaining[number]
        names = [[f"{stage.name} {trial.threat}" for stage in trial.stages] for trial in self.trials]
        clean = clean_columns(table.inputs.clean, table.inputs.y)
        arrays = [{name: value.cpu().numpy() for name, value in part.items()} for part in (verdicts, clean)]
        return arrays[0] | table.columns(names) | arrays[1]

    def _evidence(self, table: VerdictTable) -> Columns:
        """The very images that decided verdicts, with their index and the threat they were made for: M×3×H×W fp32."""
        index, parts = table.inputs.keys.cpu().numpy(), []
        for number, threat in [*enumerate(str(trial.threat) for trial in self.trials)]:
            rows, images = table.evidence(number)
            parts.append({"index": index[rows], "threat": np.full(len(rows), threat, dtype="<U32"), "x_adv": images})
        empty = {"index": index[:0], "threat": np.empty(0, dtype="<U32"), "x_adv": table.inputs.x[:0].cpu().numpy()}
        return join([empty, *parts])

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        """Refusals and flags from the first few images; `classes` is the number of classes of the data, if known."""
        random = self.verifier.votes > 1
        clean, flags = look_first(self.model, x, y, self.runtime, classes=classes, random_expected=random)
        stages = [stage for trial in self.trials for stage in trial.stages]
        flags += [flag("yellow", "no_attention", note) for note in self._notes]
        return flags + fallbacks(clean.shape[1], stages)

    def note_search(self, precision: SearchPrecision, seconds: Mapping[str, float]) -> None:
        """What another process says about a piece that it measured."""
        self.precision = precision
        for name, value in seconds.items():
            self.seconds[name] = round(self.seconds.get(name, 0.0) + value, 3)

    def complete(self, identity: Any, *, seconds: Mapping[str, float] = MappingProxyType({})) -> Any:
        """The identity with the settings and times that are known only after measuring; `seconds`: of other parts."""
        recorded = {"recording": round(self._pool.recorded_s, 3)} if self._pool and self._pool.recorded_s else {}
        return dataclasses.replace(
            identity, trials=self.trials, precision=self.precision, seconds={**self.seconds, **recorded, **seconds}
        )


def piece_rows(shape: tuple[int, ...], batch_size: int, runtime: Runtime, *, pooled: bool, most: int) -> int:
    """The pool is most efficient with many images at once; for batch attacks a piece is one batch."""
    room = max(batch_size, _RESIDENT_BYTES // (4 * int(np.prod(shape)))) if pooled else 1
    return whole_batches(room, batch_size, runtime, most=most)


def whole_batches(room: int, batch_size: int, runtime: Runtime, *, most: int) -> int:
    """Rows of a piece: about `most`, where `room` allows it.

    On a CPU a piece is made of whole batches. Then every image is in the same batch whatever the number of workers, and
    results are equal to the bit: the last bits of a product of matrices depend on the size of the batch.
    """
    if runtime.torch_device.type != "cpu":
        return max(1, min(max(room, batch_size), most))
    return batch_size * max(1, min(room // batch_size, -(-most // batch_size)))


def _settled(trials: list[ThreatStages], model: nn.Module, like: Tensor) -> tuple[list[ThreatStages], list[str]]:
    """Trials whose attacks have the settings they take from this model written out, and their notes.

    This happens before anything is measured, so that settings that do not fit the model are refused at once.
    """
    notes = []

    def settle(stage: Stage) -> Stage:
        attack, note = stage.attack.settle(model, like.clamp(0, 1))
        notes.extend([f"{stage.name}: {note}"] if note else [])
        return dataclasses.replace(stage, attack=attack)

    settled = [dataclasses.replace(trial, stages=tuple(settle(stage) for stage in trial.stages)) for trial in trials]
    return settled, list(dict.fromkeys(notes))


class _Notes:
    """Partial progress of one piece on disk: the verdict table, and the record of the stage that is running.

    The notes of another version are not read: the piece then starts again and ends with the same verdicts.
    """

    _FORMAT = 2

    def __init__(self, notebook: Notebook | None, table: VerdictTable) -> None:
        self.notebook, self.table = notebook, table
        self.trial = self.stage = 0
        self.attempts: dict[str, np.ndarray] | None = None  # of the stage that was running
        self._written = time.monotonic()
        arrays = (notebook.read() if notebook is not None else None) or {}
        self.exist = int(arrays.get("format", 0)) == self._FORMAT
        if self.exist:
            table.restore(_under("table.", arrays))
            self.trial, self.stage = int(arrays["trial"]), int(arrays["stage"])
            self.attempts = _under("attempts.", arrays) or None

    def write(self, trial: int, progress: RunProgress) -> None:
        """Every so many seconds."""
        if self.notebook is None or time.monotonic() - self._written <= NOTE_EVERY_S:
            return
        place = {"format": self._FORMAT, "trial": trial, "stage": progress.stage}
        record = progress.record.arrays() if progress.record is not None else {}
        self.notebook.write(
            {name: np.array(value) for name, value in place.items()}
            | {f"table.{name}": value for name, value in self.table.arrays().items()}
            | {f"attempts.{name}": value for name, value in record.items()}
        )
        self._written = time.monotonic()


def _under(prefix: str, arrays: Columns) -> Columns:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


_SHOWN = ("index", "label", "clean_prediction", "adversarial_prediction", "size")


def join(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
