"""One chunk of an evaluation: clean predictions, then a attack_run for every trial, and what became of each image."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import AttackRun, News
from hardtack.attacks.pool.attempts import Images
from hardtack.attacks.pool.fast_copy import search_model
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.engine import Notebook
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, fallbacks, flag, look_first
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.sights import clean_columns
from hardtack.evaluation.trials import Trial, default_batch, search_precision, votes

Columns = dict[str, np.ndarray]
NOTE_EVERY_S = 20.0
_RESIDENT_BYTES = 2**28  # of images that a chunk of a pooled suite may hold


class Measure:
    """Measures chunk after chunk. `like` are a few of the images, from which shapes are taken."""

    def __init__(
        self, model: nn.Module, trials: list[Trial], config: EvaluationConfig, runtime: Runtime, *, like: Tensor
    ) -> None:
        self.model, self.config, self.runtime = model, config, runtime
        self.trials, self._notes = _settled(trials, model, like)
        self.shape = tuple(like.shape[1:])
        self.batch_size = config.batch_size or default_batch(self.shape, runtime.torch_device.type)
        self.verifier = Verifier(model, runtime, votes=votes(config), batch_size=self.batch_size)
        self.precision = search_precision(config, runtime, like[0].numel())
        self._pool: Pool | None = None
        self.seconds: dict[str, float] = {}  # by attack, in this process

    @property
    def pooled(self) -> bool:
        return any(hasattr(stage.attack, "begin") for trial in self.trials for stage in trial.stages)

    def chunk_size(self, most: int) -> int:
        """A pool likes many images at once; other attacks write a chunk with every batch."""
        if not self.pooled:
            return self.batch_size
        room = max(self.batch_size, _RESIDENT_BYTES // (4 * int(np.prod(self.shape))))
        return max(1, min(room, most))

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, Columns]:
        """Verdicts of the chunk, the first `wanted` images with what became of them, and the images that decided."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        self._evidence = [_evidence(x[:0], y[:0], "")]
        with preserve_state(self.model):
            clean = self.verifier.logits(x)
            check_logits(clean, y, votes=self.verifier.votes)
            verdict = self._trials(Images(x, y, index, clean), notebook, meter)
        columns = {name: value.cpu().numpy() for name, value in verdict.items() if value.ndim == 1}
        columns["broken_by"] = np.array([self._name(int(code)) for code in columns["broken_by"]], dtype=object)
        shown = slice(0, min(wanted, len(x)))
        pictures = {"x": x, "x_adv": verdict["x_adv"], **{k: v for k, v in verdict.items() if k in _SHOWN}}
        examples = {k: _picture(v[shown]) for k, v in pictures.items()} if shown.stop else {}
        return columns, examples, join(self._evidence)

    def _trials(self, images: Images, notebook: Notebook | None, meter: Meter) -> dict[str, Tensor]:
        prediction = images.clean.argmax(dim=1)
        correct = prediction == images.y
        page = _Page(notebook)
        verdict: dict[str, Tensor] = {}
        whole = _Whole(images, correct, prediction)
        for number, trial in enumerate(self.trials):
            standing = whole.standing if trial.follows else correct
            attack_run = AttackRun(images, list(trial.stages), standing=standing, prediction=prediction)
            if (kept := page.of(number)) is not None:
                attack_run.restore(kept)
            attack_run.run(self.model, self.pool(images), self.verifier, self._teller(attack_run, number, page, meter))
            whole.enter(number, trial, attack_run)
            fell = attack_run.attacked & ~attack_run.standing
            self._evidence.append(_evidence(attack_run.x_adv[fell], images.keys[fell], str(trial.threat)))
            for name, seconds in attack_run.seconds.items():
                self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)
            page.turn(number, attack_run)
            for radius in trial.radii:
                verdict[f"robust@{radius}"] = correct & ~whole.fell_within(radius.radius)
            verdict[f"robust@{trial.threat}"] = attack_run.standing.clone()
        return verdict | whole.columns() | clean_columns(images.clean, images.y)

    def pool(self, images: Images) -> Pool:
        if self._pool is None:
            model, arithmetic = self.model, self.precision
            if self.pooled:
                model, arithmetic = search_model(self.model, self.runtime, self.precision, images.x[:8])
            every = 5 if self.runtime.torch_device.type == "cuda" else 2
            patience = 40.0 if self.runtime.compiles and self.precision != "fp32" else None
            patience = 0.0 if self.runtime.compile else patience
            self._pool = Pool(
                model, self.runtime, self.batch_size, self.verifier, arithmetic, coarse=self.precision,
                patience_s=patience, every=every,
            )  # fmt: skip
        return self._pool

    def _teller(self, attack_run: AttackRun, number: int, page: _Page, meter: Meter) -> Any:
        def tell(news: News) -> None:
            done = (number + news.share) / len(self.trials)
            meter.note(f"{news.name} · {news.standing} of {len(attack_run.images.x)} stand", done)
            page.write(number, attack_run)

        return tell

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        """Refusals and flags from the first few images; `classes` is how many the data has, where it says."""
        random = self.verifier.votes > 1
        clean, flags = look_first(self.model, x, y, self.runtime, classes=classes, random_expected=random)
        stages = [stage for trial in self.trials for stage in trial.stages]
        flags += [flag("yellow", "no_attention", note) for note in self._notes]
        return flags + fallbacks(clean.shape[1], stages)

    def known(self, identity: Any) -> Any:
        """The identity with what was settled while measuring."""
        recorded = {"recording": round(self._pool.recorded_s, 3)} if self._pool and self._pool.recorded_s else {}
        return dataclasses.replace(
            identity, trials=self.trials, precision=self.precision, seconds={**self.seconds, **recorded}
        )

    def _name(self, code: int) -> str | None:
        if code < 0:
            return None
        trial = self.trials[code // _STAGES]
        return f"{trial.stages[code % _STAGES].name} {trial.threat}"


def _settled(trials: list[Trial], model: nn.Module, like: Tensor) -> tuple[list[Trial], list[str]]:
    """Trials whose attacks say what they take from this model, and what some of them do for want of it.

    Before anything is measured: settings that do not fit the model must not wait for an image that is right when clean.
    """
    notes = []

    def settle(stage: Stage) -> Stage:
        if not hasattr(stage.attack, "settle"):
            return stage
        attack, note = stage.attack.settle(model, like.clamp(0, 1))
        notes.extend([f"{stage.name}: {note}"] if note else [])
        return dataclasses.replace(stage, attack=attack)

    made = [dataclasses.replace(trial, stages=tuple(settle(stage) for stage in trial.stages)) for trial in trials]
    return made, list(dict.fromkeys(notes))


_STAGES = 1000  # a code of broken_by is trial · _STAGES + stage


class _Whole:
    """What became of the images over all trials: the first that broke one names the reason."""

    def __init__(self, images: Images, correct: Tensor, prediction: Tensor) -> None:
        none, no = torch.full_like(images.y, -1), torch.zeros_like(correct)
        self.images = images
        self.standing, self.x_adv, self.prediction = correct.clone(), images.x.clone(), prediction.clone()
        self.broken_by, self.target, self.step = none, none.clone(), none.clone()
        self.size = torch.full((len(none),), torch.nan, device=none.device)
        self.forwards, self.backwards = none * 0, none * 0
        self.attacked, self.zero, self.flat, self.unverified, self.not_finite = (no.clone() for _ in range(5))
        self.silent, self.climbed = no.clone(), no.clone()

    def enter(self, number: int, trial: Trial, attack_run: AttackRun) -> None:
        attacked, fell = attack_run.attacked, attack_run.attacked & ~attack_run.standing
        news = attacked & self.standing  # what broke an image in an earlier trial stays its reason
        keep = news.reshape(-1, 1, 1, 1)
        self.x_adv = torch.where(keep, attack_run.x_adv, self.x_adv)
        self.prediction = torch.where(news, attack_run.prediction, self.prediction)
        self.size = torch.where(news, trial.threat.size(attack_run.x_adv - self.images.x), self.size)
        first = fell & self.standing
        self.broken_by = torch.where(first, number * _STAGES + attack_run.broken_by, self.broken_by)
        self.target = torch.where(first, attack_run.target, self.target)
        self.step = torch.where(first, attack_run.step, self.step)
        self.standing = self.standing & ~fell
        self.forwards, self.backwards = self.forwards + attack_run.forwards, self.backwards + attack_run.backwards
        # what concerns the number: gradients that told nothing, and losses that no attack could raise
        self.zero = self.zero | attack_run.zero_gradient
        flat = attack_run.flat & (self.flat | ~self.climbed)  # in every trial that climbed
        self.flat = torch.where(attack_run.climbed, flat, self.flat)
        self.climbed = self.climbed | attack_run.climbed
        self.unverified, self.not_finite = (
            self.unverified | attack_run.unverified,
            self.not_finite | attack_run.not_finite,
        )
        self.attacked, self.silent = self.attacked | attacked, self.silent | attack_run.silent

    def fell_within(self, radius: float) -> Tensor:
        return (self.broken_by >= 0) & (self.size <= radius * (1 + 1e-6) + 2e-7)

    def columns(self) -> dict[str, Tensor]:
        return {
            "index": self.images.keys, "label": self.images.y, "robust": self.standing, "broken_by": self.broken_by,
            "broken_at_step": self.step, "target": self.target, "size": self.size,
            "adversarial_prediction": self.prediction, "forwards": self.forwards, "backwards": self.backwards,
            "attacked": self.attacked, "zero_gradient": self.zero, "flat_loss": self.flat,
            "unverified": self.unverified, "not_finite": self.not_finite, "silent_success": self.silent & self.standing,
            "x_adv": self.x_adv,
        }  # fmt: skip


class _Page:
    """What a notebook holds of a chunk: the sieges that are over, and the one under way."""

    def __init__(self, notebook: Notebook | None) -> None:
        self.notebook = notebook
        self.known = (notebook.read() if notebook is not None else None) or {}
        self._written = time.monotonic()

    def of(self, number: int) -> dict[str, np.ndarray] | None:
        prefix = f"{number}."
        return {k.removeprefix(prefix): v for k, v in self.known.items() if k.startswith(prefix)} or None

    def write(self, number: int, attack_run: AttackRun) -> None:
        if self.notebook is not None and time.monotonic() - self._written > NOTE_EVERY_S:
            self.notebook.write(self._with(number, attack_run))
            self._written = time.monotonic()

    def turn(self, number: int, attack_run: AttackRun) -> None:
        if self.notebook is not None:
            self.known = self._with(number, attack_run)

    def _with(self, number: int, attack_run: AttackRun) -> dict[str, np.ndarray]:
        """All sieges; of this one nothing that an older page said, whose attempts may be of another stage."""
        prefix = f"{number}."
        others = {name: value for name, value in self.known.items() if not name.startswith(prefix)}
        return others | {f"{prefix}{name}": value for name, value in attack_run.arrays().items()}


_SHOWN = ("index", "label", "clean_prediction", "adversarial_prediction", "size")


def _picture(value: Tensor) -> np.ndarray:
    return (value.permute(0, 2, 3, 1) if value.ndim == 4 else value).cpu().numpy()


def _evidence(x_adv: Tensor, index: Tensor, threat: str) -> Columns:
    """The very images that decided, with their index and the threat they were made for: N×3×H×W fp32."""
    threats = np.full(len(index), threat, dtype="<U32")
    return {"index": index.cpu().numpy(), "threat": threats, "x_adv": x_adv.cpu().numpy()}


def join(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
