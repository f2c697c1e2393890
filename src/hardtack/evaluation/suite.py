"""Measuring the same way every time: `evaluate` gives a model's accuracy, clean and attacked, image by image.

Images go through in chunks. In each: clean predictions in fp32, then every trial of the suite on the images
still standing, then a check in fp32 of the very tensor found (in the ball, in the box, misclassified).
Whatever the search did, a reported robust accuracy is then a true upper bound. Finished chunks are on disk; a
repeated call goes on after them and ends with the same numbers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent, untouched
from hardtack.config import build, choose
from hardtack.data import Dataset, batches
from hardtack.errors import UserError, did_you_mean
from hardtack.evaluation.outcome import (
    Evaluation,
    Subject,
    identify,
    join,
    read_examples,
    recall,
    summarise,
)
from hardtack.evaluation.sanity import Flag, check_behaviour, check_inputs, check_logits, few_classes
from hardtack.progress import Meter
from hardtack.registry import attacks
from hardtack.results import ChunkStore, read_verdicts
from hardtack.runtime import Runtime
from hardtack.threats import Threat

Columns = dict[str, np.ndarray]
Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """`suite`: clean, pgd, or sweep (robust accuracy against eps). `attack` overrides the suite's attack."""

    suite: str = "pgd"
    threat: Threat = field(default_factory=lambda: Threat.parse("linf:8/255"))
    attack: dict[str, Any] = field(default_factory=dict)
    sweep: Sweep = ("0", "1/4", "1/2", "3/4", "1", "3/2", "2")  # in multiples of the threat's eps
    batch_size: Annotated[int, Field(ge=1)] = 256
    examples: Annotated[int, Field(ge=0)] = 12

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            hint = did_you_mean(self.suite, SUITES) or f"; known: {', '.join(SUITES)}"
            raise UserError(f"there is no suite '{self.suite}'{hint}")


def _clean(config: EvaluationConfig) -> list[Ascent]:
    return []


def _pgd(config: EvaluationConfig) -> list[Ascent]:
    settings = {"name": "pgd", "threat": config.threat, **config.attack}
    if settings["name"] in attacks and "steps" not in attacks.get(settings["name"]).presets:
        settings = {"steps": 20, **settings}  # fgsm brings its one step along
    return [choose(attacks, settings, path="attack")]


def _sweep(config: EvaluationConfig) -> list[Ascent]:
    """The same attack at growing radii. An image that fell in a small ball has fallen in every larger one."""
    (attack,) = _pgd(config)
    try:
        factors = sorted({Fraction(str(word)) for word in config.sweep})
    except (ValueError, ZeroDivisionError):
        raise UserError(f"sweep takes multiples of eps such as 1/2, found {list(config.sweep)}") from None
    return [dataclasses.replace(attack, threat=attack.threat.scaled(factor)) for factor in factors]


SUITES = {"clean": _clean, "pgd": _pgd, "sweep": _sweep}


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
    _check_pair(data)
    config = config or build(EvaluationConfig, settings)
    runtime = runtime or Runtime()
    trials = SUITES[config.suite](config)
    began, home = time.monotonic(), next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        identity = identify(model, data, config, trials, runtime, subject or Subject())
        store = ChunkStore(folder, identity.id) if folder is not None else None
        if store is not None and (known := recall(store)) is not None:
            return known
        measure = _Measure(model, trials, config, runtime)
        flags = measure.first_checks(*_head(data, runtime.torch_device))
        with runtime.distributed():
            columns, examples = _run_chunks(measure, data, store, runtime, quiet=quiet)
    finally:
        model.to(home)
    return summarise(
        identity,
        columns,
        examples,
        flags,
        folder if runtime.is_main else None,
        seconds=time.monotonic() - began,
    )


def _run_chunks(
    measure: _Measure, data: Any, store: ChunkStore | None, runtime: Runtime, *, quiet: bool
) -> tuple[Columns, Columns]:
    """Verdicts and examples of all chunks, computed now or read from disk."""
    if store is not None and store.path.exists():  # nothing left to do
        return read_verdicts(store.path), read_examples(store)
    config, total = measure.config, -(-_count(data) // measure.config.batch_size)
    sharers = runtime.world_size if store is not None else 1
    mine = [number for number in range(total) if number % sharers == runtime.rank % sharers]
    missing = sorted(set(mine) - set(store.done() if store is not None else ()))
    made: list[tuple[Columns, Columns]] = []
    title = f"evaluate {config.suite}"
    with Meter(title, total=len(mine), done=len(mine) - len(missing), quiet=quiet or not runtime.is_main) as meter:
        for number, (x, y, index) in _chunks(data, config.batch_size, runtime.torch_device, missing):
            columns, pictures = measure(x, y, index, wanted=max(0, config.examples - number * config.batch_size))
            if store is None:
                made.append((columns, pictures))
            else:
                store.write(number, columns, pictures)
            meter.advance(len(x))
    if store is None:
        return join([columns for columns, _ in made]), join([pictures for _, pictures in made if pictures])
    if runtime.world_size > 1:
        torch.distributed.barrier()
    columns, pictures = store.read_all(), store.read_arrays()
    if runtime.world_size > 1:
        torch.distributed.barrier()
    return columns, pictures


def _check_pair(data: Any) -> None:
    """Tensors given as data come in pairs of one length, or whole rows would be lost without a word."""
    if isinstance(data, Dataset):
        return
    if not isinstance(data, tuple) or len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        raise UserError(f"data must be a data set or a pair (x, y) of tensors, found {type(data).__name__}")
    if len(data[0]) != len(data[1]):
        raise UserError(f"there must be one label for each image, found {len(data[0])} and {len(data[1])}")


def _count(data: Any) -> int:
    return len(data[1] if isinstance(data, tuple) else data)


def _head(data: Any, device: torch.device, count: int = 8) -> tuple[Tensor, Tensor]:
    """The first few images, on which the model's manners are checked."""
    if _count(data) == 0:
        raise UserError("there are no images to evaluate")
    if isinstance(data, tuple):
        return data[0][:count].to(device), data[1][:count].to(device)
    batch = next(batches(data, min(count, len(data)), device=device, workers=0))
    return batch.x, batch.y


def _chunks(
    data: Any, size: int, device: torch.device, wanted: list[int]
) -> Iterator[tuple[int, tuple[Tensor, Tensor, Tensor]]]:
    """The wanted chunks; a streamed set starts reading at the first of them."""
    if isinstance(data, tuple):
        x, y = data
        for number in wanted:
            rows = torch.arange(number * size, min((number + 1) * size, len(x)))
            yield number, (x[rows].to(device), y[rows].to(device), rows.to(device))
    elif wanted:
        for number, batch in enumerate(batches(data, size, device=device, start=wanted[0]), start=wanted[0]):
            if number in wanted:
                yield number, (batch.x, batch.y, batch.index)


class _Measure:
    """One chunk: clean predictions, the trials, and their verification."""

    def __init__(self, model: nn.Module, trials: list[Ascent], config: EvaluationConfig, runtime: Runtime) -> None:
        self.model, self.trials, self.config, self.runtime = model, trials, config, runtime

    def __call__(self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int) -> tuple[Columns, Columns]:
        """Verdicts of the chunk, and the first `wanted` images with what became of them."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        with untouched(self.model):
            clean = self._logits(x)
            check_logits(clean, y)
            verdict = self._attack(x, y, index, clean.argmax(dim=1))
        columns = {name: value.cpu().numpy() for name, value in verdict.items() if value.ndim == 1}
        columns["broken_by"] = np.array([self._name(step) for step in columns["broken_by"]], dtype=object)
        shown = slice(0, min(wanted, len(x)))
        pictures = {"x": x, "x_adv": verdict["x_adv"], **{k: v for k, v in verdict.items() if k in _SHOWN}}
        return columns, {k: _picture(k, v[shown]) for k, v in pictures.items()} if shown.stop else {}

    def _attack(self, x: Tensor, y: Tensor, index: Tensor, prediction: Tensor) -> dict[str, Tensor]:
        correct = prediction == y
        standing, x_adv, adversarial = correct.clone(), x.clone(), prediction.clone()
        nothing = torch.full_like(y, -1)
        broken_by, broken_at = nothing.clone(), nothing.clone()
        size = torch.full((len(x),), torch.nan, device=x.device)
        attacked, zero, flat, unverified = (torch.zeros_like(correct) for _ in range(4))
        verdict: dict[str, Tensor] = {}
        for number, attack in enumerate(self.trials):
            rows = standing.nonzero()[:, 0]
            if len(rows) and attack.threat.eps > 0:
                with self.runtime.arithmetic():
                    found = attack.search(self.model, x[rows], y[rows], keys=index[rows])
                predicted = self._logits(found.x_adv).argmax(dim=1)
                wrong = (predicted != y[rows]) & attack.threat.contains(found.x_adv, x[rows])
                attacked[rows] = True
                unverified[rows] |= found.fooled & ~wrong
                zero[rows] = found.zero_gradient
                flat[rows] = found.first_loss.isfinite() & (found.best_loss <= found.first_loss)
                x_adv[rows], adversarial[rows] = found.x_adv, predicted
                size[rows] = attack.threat.size(found.x_adv - x[rows])
                fallen = rows[wrong]
                standing[fallen] = False
                broken_by[fallen], broken_at[fallen] = number, found.broken_at[wrong]
            verdict[f"robust@{attack.threat}"] = standing.clone()
        return verdict | {
            "index": index, "label": y, "clean_prediction": prediction, "clean_correct": correct,
            "robust": standing, "broken_by": broken_by, "broken_at_step": broken_at, "size": size,
            "adversarial_prediction": adversarial, "attacked": attacked, "zero_gradient": zero,
            "flat_loss": flat, "unverified": unverified, "x_adv": x_adv,
        }  # fmt: skip

    @torch.no_grad()
    def _logits(self, x: Tensor) -> Tensor:
        with self.runtime.arithmetic("fp32"):
            return self.model(x).float()

    def first_checks(self, x: Tensor, y: Tensor) -> list[Flag]:
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        with untouched(self.model), self.runtime.arithmetic("fp32"):
            clean = self._logits(x)
            check_logits(clean, y)
            flags = check_behaviour(self.model, x, clean)
        return flags + [flag for attack in self.trials[:1] for flag in few_classes(clean.shape[1], attack.loss or "ce")]

    def _name(self, number: int) -> str | None:
        return None if number < 0 else f"{self.config.suite} {self.trials[number].threat}"


_SHOWN = ("index", "label", "clean_prediction", "adversarial_prediction", "size")


def _picture(name: str, value: Tensor) -> np.ndarray:
    if name == "x":
        return (value * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return (value.permute(0, 2, 3, 1) if name == "x_adv" else value).cpu().numpy()
