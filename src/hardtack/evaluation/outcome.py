"""What an evaluation is called and what it says: its identity, its results, and the value users hold."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hardtack
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.engine import job_id, tensor_digest
from hardtack.evaluation.flip_scores import FLIPS, flip_list
from hardtack.evaluation.metrics import accuracy, clean_results, robustness_area
from hardtack.evaluation.provenance import Provenance, device_name, versions
from hardtack.evaluation.sanity import Flag, black_box_flags, search_flags
from hardtack.evaluation.scores import ONE_VIEW, corruption_grid
from hardtack.evaluation.sights import Sight, facts
from hardtack.evaluation.surveys import SURVEYS
from hardtack.results import (
    SWEEPS,
    Result,
    append_results,
    read_arrays,
    read_results,
    read_verdicts,
    verdicts_path,
    write_arrays,
    write_verdicts,
)

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Everything that decides the verdicts, and the digest that names them."""

    id: str
    suite: str
    trials: list[Any]
    sights: Sequence[Sight]
    provenance: Provenance
    data: str
    data_description: str
    classes: tuple[str, ...]
    runtime: Runtime
    precision: str = "fp32"  # of the search
    seconds: dict[str, float] = field(default_factory=dict)  # by attack
    parameters: int = 0
    source: str = ""  # of corrupted or shifted images: who made them


def identify(
    model: nn.Module,
    data: Any,
    config: Any,
    trials: list[Any],
    sights: Sequence[Sight],
    runtime: Runtime,
    provenance: Provenance,
    *,
    kept: bool,
) -> Identity:
    """`kept`: the verdicts go to disk, and need a name that changes with everything that could change them."""
    if isinstance(data, tuple):
        name, description, classes = "tensors", f"{len(data[1])} images given as tensors", ()
    else:
        name, description, classes = f"{data.name}/{data.split}", data.description, tuple(data.classes)
    decisive = [
        name, description, config.suite, [[str(t.threat), t.words, t.details, *map(str, t.radii)] for t in trials],
        config.examples, config.keep, runtime.seed, runtime.precision, hardtack.__version__,
        *([[facts(sight) for sight in sights]] if sights else ()),
        *(contents(model, data) if kept else ()),
    ]  # fmt: skip
    return Identity(
        id=job_id(config.suite, decisive), suite=config.suite, trials=trials, sights=sights, provenance=provenance,
        data=name, data_description=description, classes=classes, runtime=runtime,
        parameters=sum(weight.numel() for weight in model.parameters()), source=getattr(data, "source", ""),
    )  # fmt: skip


def contents(model: nn.Module, data: Any) -> tuple[Any, ...]:
    """Digests of the weights and the images. Normalisation is in the buffers and in the architecture."""
    weights = tensor_digest({**model.state_dict(), **dict(model.named_buffers())})
    if isinstance(data, tuple):
        images = tensor_digest({"x": data[0], "y": data[1]})
    else:
        images = tensor_digest({"labels": data.labels, "index": data.index, **_resident_pixels(data)})
    return weights, plain(getattr(model, "architecture", None)), images


def _resident_pixels(data: Any) -> dict[str, torch.Tensor]:
    """The images where they are in memory anyway; a streamed set is known by its name and labels."""
    pixels = getattr(data.store, "pixels", None)
    return {} if pixels is None else {"pixels": pixels, "rows": data.rows}


@dataclass(frozen=True)
class Evaluation:
    """A measured model. `verdicts` has one row per image; `examples` shows the first few."""

    id: str
    results: tuple[Result, ...]
    verdicts: Columns
    examples: Columns

    @property
    def clean_accuracy(self) -> float:
        return next(result.value for result in self.results if result.metric == "clean_accuracy")

    @property
    def robust_accuracy(self) -> float | None:
        """Under the strongest threat of the suite, or the union of all; None when nothing attacked."""
        values = [r.value for r in self.results if r.metric in ("robust_accuracy", "worst_case_accuracy")]
        return values[-1] if values else None

    @property
    def robust(self) -> np.ndarray:
        """One bool per image: right on the clean image and on every attacked one."""
        if "robust" not in self.verdicts:
            raise UserError(f"{self.id} attacked nothing; its verdicts have {', '.join(list(self.verdicts)[:8])} …")
        return self.verdicts["robust"]

    @property
    def curve(self) -> list[tuple[str, float]]:
        return [(result.threat or "", result.value) for result in self.results if result.metric == "robust_accuracy"]

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.results[-1].flags

    def __repr__(self) -> str:
        return f"Evaluation({self.id}: {', '.join(f'{r.metric} {r.value:.2%}' for r in self.results)})"

    def __str__(self) -> str:
        first, last = self.results[0], self.results[-1]
        title = (last.attack or self.id.split("-")[0]).removeprefix(f"{last.attack_settings.get('kind')} ")
        lines = [f"{title} on {first.data}  ({self.id})"]
        lines += corruption_grid(self.results) + flip_list(self.results)
        sums = [result for result in self.results if result.metric not in (ONE_VIEW, FLIPS)]
        names = [_label(result) for result in sums]
        width = max(32, *(len(name) for name in names))
        for name, result in zip(names, sums, strict=True):
            lines.append(f"{name:<{width}} {result.value:7.2%}  [{result.low:.2%}, {result.high:.2%}]  n={result.n}")
        lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in self.flags]
        return "\n".join(lines)


def _label(result: Result) -> str:
    """`robust accuracy linf:8/255`, `patch accuracy occlude`."""
    parts = (result.metric.replace("_", " "), result.attack_settings.get("kind"), result.threat)
    return " ".join(str(part) for part in parts if part)


def summarise(
    identity: Identity,
    columns: Columns,
    examples: Columns,
    flags: list[Flag],
    folder: str | Path | None,
    *,
    seconds: float,
) -> Evaluation:
    """Results from verdicts; with a folder, everything is written there."""
    common = _common(identity, columns, seconds)
    flags = [*identity.provenance.flags, *flags]
    if identity.trials:
        stages = {str(trial.threat): [stage.name for stage in trial.stages] for trial in identity.trials}
        flags += search_flags(columns, random=_is_random(flags, identity)) + black_box_flags(
            common["extra"]["broken_by"], stages, len(columns["index"])
        )
    clean_flags = [flag for flag in flags if _concerns_clean(flag)]
    results = clean_results(columns, identity.classes, clean_flags, common, whole=identity.suite == "clean")
    classes = () if identity.suite in SWEEPS else identity.classes  # of many radii each class would be a curve
    for trial in identity.trials:
        words = _words(trial, common["extra"])
        if trial.protocol:
            words["extra"]["stages"] = trial.details
        for threat in (*trial.radii, trial.threat):
            known = {**common, **words, "threat": str(threat)}
            robust = columns[f"robust@{threat}"]
            results.append(accuracy("robust_accuracy", robust, columns["label"], classes, flags, known))
    if identity.suite in SWEEPS:
        results.append(robustness_area(columns, results[-1]))
    if identity.sights:
        results += SURVEYS[identity.suite].score(identity.sights, columns, flags, common)
    if len({str(trial.threat) for trial in identity.trials if not trial.follows}) > 1:
        threats = "+".join(str(trial.threat) for trial in identity.trials)
        words = _words(identity.trials[0], common["extra"])
        known = {**common, **words, "threat": threats}
        results.append(accuracy("worst_case_accuracy", columns["robust"], columns["label"], classes, flags, known))
    if folder is not None:
        _write(Path(folder), identity, columns, examples, results)
    return Evaluation(identity.id, tuple(results), columns, examples)


def _words(trial: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """What a result says of its attack; `limits` where a threat alone does not say what may change."""
    limits = [stage.attack.limits for stage in trial.stages]
    known = {"limits": " or ".join(dict.fromkeys(limits))} if all(limits) else {}
    return {"attack": trial.words, "attack_settings": trial.settings, "extra": {**extra, **known}}


def _is_random(flags: list[Flag], identity: Identity) -> bool:
    eot = [stage.attack.eot for trial in identity.trials for stage in trial.stages]
    return any(flag["code"] == "random_outputs" for flag in flags) or max(eot, default=1) > 1


def _concerns_clean(flag: Flag) -> bool:
    return flag["code"] in ("random_outputs", "batch_dependent", "other_classes", "class_names", "untrained")


def _common(identity: Identity, columns: Columns, seconds: float) -> dict[str, Any]:
    provenance, runtime = identity.provenance, identity.runtime
    seed = runtime.seed
    return {
        "suite": identity.suite, "evaluation": identity.id, "data": identity.data,
        "data_description": identity.data_description, "run": provenance.run, "model": provenance.model,
        "checkpoint": provenance.checkpoint, "weights_sha256": provenance.weights_sha256,
        "seed": next((s.attack.seed for t in identity.trials for s in t.stages if "seed" in s.attack.settings()), seed),
        "precision": "fp32" if identity.sights else f"{identity.precision} search, fp32 verified",
        "device": device_name(runtime),
        "seconds": round(seconds, 3), "versions": versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "verdicts": f"verdicts/{identity.id}.parquet",
        "extra": {
            "words": list(provenance.words), "parameters": identity.parameters, "seconds": identity.seconds,
            **({"source": identity.source} if identity.source else {}),
            **_spent(identity, columns),
        },
    }  # fmt: skip


def _spent(identity: Identity, columns: Columns) -> dict[str, Any]:
    """Passes through the model, and what an attack came to."""
    if identity.sights:
        each, n = [sight.cost for sight in identity.sights], len(columns["index"])
        return {
            "forwards": n * (1 + sum(cost.forwards for cost in each)),
            "backwards": n * sum(cost.backwards for cost in each),
        }
    return {
        "unverified": int(columns["unverified"].sum()), "forwards": int(columns["forwards"].sum()),
        "backwards": int(columns["backwards"].sum()), "broken_by": _counts(columns["broken_by"]),
    }  # fmt: skip


def _counts(names: np.ndarray) -> dict[str, int]:
    """How many images each attack broke."""
    found, counts = np.unique(np.array([name for name in names if name is not None], dtype=str), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _write(folder: Path, identity: Identity, columns: Columns, examples: Columns, results: list[Result]) -> None:
    if examples and identity.trials and identity.suite not in SWEEPS:
        facts = {"threat": np.array(str(identity.trials[-1].threat)), "classes": np.array(identity.classes)}
        pictures = {**examples, "x": eight_bits(examples["x"]), "x_exact": examples["x"]}
        write_arrays(_examples_path(folder, identity.id), {**pictures, **facts})
    append_results(folder, results)
    write_verdicts(verdicts_path(folder, identity.id), columns)  # last: it says that the evaluation is complete


def eight_bits(x: np.ndarray) -> np.ndarray:
    return np.round(255 * x).astype(np.uint8)


def _examples_path(folder: Path, id: str) -> Path:
    return folder / "examples" / f"{id}.npz"


def _read_examples(folder: Path, id: str) -> Columns:
    path = _examples_path(folder, id)
    if not path.exists():
        return {}
    arrays = {name: value for name, value in read_arrays(path).items() if name not in ("threat", "classes")}
    exact = arrays.pop("x_exact")
    return {**arrays, "x": exact}


def recall(folder: str | Path, id: str) -> Evaluation | None:
    """The evaluation as it was written when it was complete; None while there is something left to do."""
    folder = Path(folder)
    results = tuple(result for result in read_results(folder) if result.evaluation == id)
    if not results or not verdicts_path(folder, id).exists():
        return None
    try:
        return Evaluation(id, results, read_verdicts(verdicts_path(folder, id)), _read_examples(folder, id))
    except UserError as error:  # a damaged file must not stop the evaluation that would replace it
        print(f"{error}; it is evaluated again", file=sys.stderr)
        return None
