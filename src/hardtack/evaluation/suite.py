"""Measuring the same way every time: `evaluate` gives a model's accuracy, clean and attacked, image by image.

Images go through in chunks. In each: clean predictions in fp32, then every trial of the suite on the images
still standing, then a check in fp32 of the very tensor found (in the ball, in the box, misclassified).
Whatever the search did, a reported robust accuracy is then a true upper bound. Finished chunks are on disk; a
repeated call goes on after them and ends with the same numbers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.config import build, choose
from hardtack.data import Dataset
from hardtack.errors import UserError, did_you_mean
from hardtack.evaluation.chunks import check_pair, chunks, count, head
from hardtack.evaluation.measure import Columns, Measure
from hardtack.evaluation.outcome import Evaluation, Subject, identify, join, recall, summarise
from hardtack.progress import Meter
from hardtack.registry import attacks
from hardtack.results import ChunkStore
from hardtack.runtime import Runtime
from hardtack.threats import Threat

Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """`suite`: clean, pgd, or sweep (robust accuracy against eps). `attack` overrides the suite's attack."""

    suite: str = "pgd"
    threat: Threat = field(default_factory=lambda: Threat.parse("linf:8/255"))
    attack: Any = field(default_factory=dict)  # its name, its settings, or in Python the attack itself
    sweep: Sweep = ("0", "1/4", "1/2", "3/4", "1", "3/2", "2")  # in multiples of the threat's eps
    batch_size: Annotated[int, Field(ge=1)] = 256
    examples: Annotated[int, Field(ge=0)] = 12

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            hint = did_you_mean(self.suite, SUITES) or f"; known: {', '.join(SUITES)}"
            raise UserError(f"there is no suite '{self.suite}'{hint}")


def _clean(config: EvaluationConfig) -> list[Ascent]:
    """Accuracy on the images as they are."""
    return []


def _pgd(config: EvaluationConfig) -> list[Ascent]:
    """Robust accuracy under projected gradient ascent: 20 steps, or what attack.KEY=VALUE says."""
    if not isinstance(config.attack, Mapping | str):  # a value made in Python, with a threat of its own
        if not hasattr(config.attack, "threat"):
            raise UserError("an attack to be measured needs a threat: make it a dataclass with a field of that name")
        return [config.attack]
    given = {"name": config.attack} if isinstance(config.attack, str) else config.attack
    settings = {"name": "pgd", "threat": config.threat, **given}
    entry = attacks.get(settings["name"])
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm brings its one step along
        settings = {"steps": 20, **settings}
    return [choose(attacks, settings, path="attack")]


def _sweep(config: EvaluationConfig) -> list[Ascent]:
    """Robust accuracy against eps, from 0 to twice the threat: sweep=[…] in multiples of eps.

    The same attack at growing radii. An image that fell in a small ball has fallen in every larger one.
    """
    (attack,) = _pgd(config)
    try:
        factors = sorted({Fraction(str(word)) for word in config.sweep})
    except (ValueError, ZeroDivisionError):
        raise UserError(f"sweep takes multiples of eps such as 1/2, found {list(config.sweep)}") from None
    return [dataclasses.replace(attack, threat=attack.threat.scaled(factor)) for factor in factors]


def _seeded(attack: Any, config: EvaluationConfig, seed: int) -> Any:
    """The attack draws from the runtime's seed unless it was given one of its own."""
    own = not isinstance(config.attack, Mapping | str) or "seed" in config.attack or not hasattr(attack, "seed")
    return attack if own else dataclasses.replace(attack, seed=seed)


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
    if not isinstance(model, nn.Module):
        raise UserError(f"evaluate takes a model, found {type(model).__name__}; ht.load_model(NAME) makes one")
    check_pair(data)
    config = config or build(EvaluationConfig, settings)
    runtime = runtime or Runtime()
    trials = [_seeded(attack, config, runtime.seed) for attack in SUITES[config.suite](config)]
    began, home = time.monotonic(), next(iter(model.parameters()), torch.empty(0)).device
    model.to(runtime.torch_device)
    try:
        identity = identify(model, data, config, trials, runtime, subject or Subject(), kept=folder is not None)
        store = ChunkStore(folder, identity.id) if folder is not None else None
        if store is not None and (known := recall(store)) is not None:
            return known
        measure = Measure(model, trials, config.suite, runtime)
        flags = measure.first_checks(*head(data, runtime.torch_device), classes=getattr(data, "num_classes", None))
        runtime.join()
        columns, examples = _run_chunks(config, measure, data, store, runtime, quiet=quiet)
    finally:
        model.to(home)
    where = folder if runtime.is_main else None
    return summarise(identity, columns, examples, flags, where, seconds=time.monotonic() - began)


def _run_chunks(
    config: EvaluationConfig, measure: Measure, data: Any, store: ChunkStore | None, runtime: Runtime, *, quiet: bool
) -> tuple[Columns, Columns]:
    """Verdicts and examples of all chunks, computed now or read from disk."""
    total = -(-count(data) // config.batch_size)
    sharers = runtime.world_size if store is not None else 1
    mine = [number for number in range(total) if number % sharers == runtime.rank % sharers]
    missing = sorted(set(mine) - set(store.done() if store is not None else ()))
    made: list[tuple[Columns, Columns]] = []
    title = f"evaluate {config.suite}"
    with Meter(title, total=len(mine), done=len(mine) - len(missing), quiet=quiet or not runtime.is_main) as meter:
        for number, (x, y, index) in chunks(data, config.batch_size, runtime.torch_device, missing):
            columns, pictures = measure(x, y, index, wanted=max(0, config.examples - number * config.batch_size))
            if store is None:
                made.append((columns, pictures))
            else:
                store.write(number, columns, pictures)
            meter.advance(len(x))
    if store is None:
        return join([columns for columns, _ in made]), join([pictures for _, pictures in made if pictures])
    runtime.wait()
    columns, pictures = store.read_all(), store.read_arrays()
    if len(columns["index"]) != count(data):
        raise UserError(f"{store.folder} lacks chunks of other processes: all of them must write to one disk")
    runtime.wait()
    return columns, pictures
