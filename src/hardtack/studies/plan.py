"""What a study will cost (`hardtack plan study=NAME scale=paper`), without training anything.

The work of a run is counted in multiply-adds: those of one image in the network (counted on the meta device), times the
passes of an image in a step (counted on a small network), times the images of all steps. Evaluations are counted for
images that no attack breaks: they are upper bounds. Time on one H200 is work divided by the rate that the network
reached there in a recorded benchmark (rates.json, by benchmarks/models.py). Time and memory on this machine are tried
(trial.py) where its data are here; else they are work divided by a rate that is measured now.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.config import build, choose
from hardtack.base.cost import duration, text_table
from hardtack.base.errors import UserError
from hardtack.base.instruments import Instruments, Load, busy_note
from hardtack.base.registry import analyses
from hardtack.base.runtime import Runtime
from hardtack.studies.column import StudyColumn
from hardtack.studies.evaluated import stated_column
from hardtack.studies.needs import missing_data
from hardtack.studies.request import StudyRequest, read_request
from hardtack.studies.rows import in_order
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import load_study
from hardtack.studies.trial import Trial, try_study
from hardtack.studies.unit import Unit, references, units_of

# multiply-adds a second on one H200 of networks that were not measured: those of PGD-10 adversarial training of a
# ViT-Ti/4, 6,776 images/s, 23 passes of 0.359 G, 2026-11-15
H200 = 5.6e13
_RATES = Path(__file__).with_name("rates.json")
_TRIES_S = 7200.0  # a study that is longer is not tried on a CPU: its steps take minutes there
# training images, test images, classes, pixels of sets that may not be here
KNOWN_SETS = {
    "cifar10": (50_000, 10_000, 10, 32), "cifar100": (50_000, 10_000, 100, 32), "digits": (1438, 359, 10, 32),
    "imagenet": (1_281_167, 50_000, 1000, 224), "imagenet100": (128_000, 5_000, 100, 224),
    "imagenette": (9_469, 3_925, 10, 224), "imagenette2": (9_469, 3_925, 10, 224),
    "flowers": (2_040, 6_149, 102, 224), "caltech101": (6_083, 2_594, 102, 224),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """The work of one unit, in multiply-adds."""

    label: str
    parameters: int
    per_image: float  # one forward pass
    passes: str
    images: int  # of all steps
    training: float
    evaluation: float
    measured_rate: float | None = None  # multiply-adds a second of its network on one H200, if that was measured
    digest: str = ""  # which run it is
    needs: tuple[str, ...] = ()  # digests of runs that must be finished before

    @property
    def rate(self) -> float:
        return self.measured_rate or H200

    @property
    def training_hours(self) -> float:
        """On one H200."""
        return self.training / self.rate / 3600

    @property
    def evaluation_hours(self) -> float:
        return self.evaluation / self.rate / 3600


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    request: StudyRequest
    runs: tuple[RunCost, ...]
    shared: int  # runs of the table that are the same as another one
    missing: Mapping[str, tuple[str, list[str]]]
    here: float  # multiply-adds a second on this machine
    device: str
    trial: Trial | None = None  # of this machine
    load: Load = dataclasses.field(default_factory=Load)
    notes: tuple[str, ...] = ()

    @property
    def total_s(self) -> float:
        """On this machine."""
        return self.trial.seconds if self.trial is not None else self.work / self.here

    @property
    def range_s(self) -> tuple[float, float]:
        return (self.trial.low_s, self.trial.high_s) if self.trial is not None else (0.0, self.total_s)

    @property
    def memory_mb(self) -> float:
        return self.trial.memory_mb if self.trial is not None else 0.0

    @property
    def work(self) -> float:
        return sum(run.training + run.evaluation for run in self.runs)

    @property
    def gpu_hours(self) -> float:
        """On one H200."""
        return sum(run.training_hours + run.evaluation_hours for run in self.runs)

    def __str__(self) -> str:
        request = self.request
        head = f"plan: study {request.name} at scale {request.scale}, {request.seeds} seed{'s' * (request.seeds > 1)}: "
        head += f"{len(self.runs)} trainings" + (f", {self.shared} shared between rows" if self.shared else "")
        rows = [("run", "parameters", "G/image", "passes", "images", "train", "measure, at most")]
        rows += [
            (
                run.label.partition(":")[2], f"{run.parameters / 1e6:.2f} M", f"{run.per_image / 1e9:.3g}", run.passes,
                f"{run.images:,}", hours(run.training_hours), hours(run.evaluation_hours),
            )
            for run in self.runs
        ]  # fmt: skip
        lines = [head, *text_table(rows), ""]
        training = hours(sum(run.training_hours for run in self.runs))
        lines.append(
            f"  one H200: {two_digits(self.gpu_hours)} GPU-hours, {training} of them training, at {self._rates()}"
        )
        lines += self._here()
        for name, (why, runs) in self.missing.items():
            lines.append(f"  data not here: {name}, for {len(runs)} runs ({why})")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _rates(self) -> str:
        """What the GPU-hours are counted with."""
        measured = [run.measured_rate for run in self.runs if run.measured_rate is not None]
        common = len(self.runs) - len(measured)
        parts = [f"{rate_range(measured)} multiply-adds/s, measured there for these networks"] if measured else []
        whose = f" for {common} of {len(self.runs)} runs" if measured else ""
        parts += [f"{H200:.1e} multiply-adds/s, that of a ViT-Ti/4{whose}"] if common else []
        return "; at ".join(parts)

    def _here(self) -> list[str]:
        """Time and memory on this machine."""
        if self.trial is None:
            return [f"  this machine ({self.device}): {duration(self.total_s)}, at {self.here:.1e} measured now"]
        trial, (low, high) = self.trial, self.range_s
        lines = [
            f"  this machine ({self.device}): {duration(self.total_s)} ({duration(low)} to {duration(high)}, by how "
            f"many images withstand the attacks), {trial.memory_mb:,.0f} MB",
            f"  tried for this: steps of {trial.tried} of {trial.runs} trainings, every evaluation and analysis once",
        ]
        if trial.not_tried:
            lines.append(
                f"  columns that need more than the test images are not included: {', '.join(trial.not_tried)}"
            )
        if note := busy_note(self.load):
            lines.append(f"  {note}; times are those of an idle machine")
        return lines


def hours(number: float) -> str:
    """As a table has them."""
    return f"{two_digits(number)} h" if number else "—"


def rate_range(rates: Sequence[float]) -> str:
    low, high = (f"{rate:.1e}" for rate in (min(rates, default=H200), max(rates, default=H200)))
    return low if low == high else f"{low} to {high}"


@functools.cache
def _measured_rates() -> dict[str, float]:
    return dict(json.loads(_RATES.read_text(encoding="utf-8"))["rates"])


def h200_rate(model: str, image_size: int, options: Mapping[str, Any]) -> float | None:
    """Multiply-adds a second of training passes on one H200; None where no such network was measured."""
    from hardtack.models.facts import known

    registered = known().get(model)
    if options or registered is None or registered.image_size != image_size:
        return None
    return _measured_rates().get(model)


def two_digits(hours: float) -> str:
    """Two digits of a small number; a large one as it is."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def plan_study(
    name: str, words: Mapping[str, Any], *, tries: bool = False, instruments: Instruments | None = None
) -> StudyPlan:
    """The cost of a study at a scale; `words` are those of `hardtack study`. `tries`: on this machine, where its data
    are here, by trials, which take a minute or two."""
    instruments = instruments or Instruments()
    study = load_study(name)
    request = read_request(study.name, words)
    scaled = at_scale(study, request.scale, rows=request.rows)
    units = in_order(units_of(scaled, seeds=request.seeds, words=request.settings))
    distinct = {unit.digest: unit for unit in reversed(units)}
    n = request.n if request.n is not None else scaled.scale.n
    runs: list[RunCost] = []
    ordered = sorted(distinct.values(), key=units.index)
    for unit in ordered:
        columns = scaled.columns_of(unit.training) if unit.study == study.name else []
        needs = _needs(unit, columns, units) & {run.digest for run in runs}
        runs.append(dataclasses.replace(_run_cost(unit, columns, n), digest=unit.digest, needs=tuple(sorted(needs))))
    missing, trial = missing_data(units), None
    here, device = _rate()
    on_gpu = Runtime().torch_device.type == "cuda"
    if tries and not missing and (on_gpu or sum(run.training + run.evaluation for run in runs) / here < _TRIES_S):
        trial = try_study(
            ordered, runs, lambda unit: scaled.columns_of(unit.training) if unit.study == study.name else [], n=n,
            instruments=instruments,
        )  # fmt: skip
    return StudyPlan(
        request=request, runs=tuple(runs), shared=len(units) - len(distinct), missing=missing, here=here,
        device=device, trial=trial, load=instruments.load(Runtime().torch_device),
    )  # fmt: skip


def _needs(unit: Unit, columns: Sequence[StudyColumn], units: Sequence[Unit]) -> set[str]:
    """Digests of the runs that a unit starts from or that its columns look at."""
    others = [unit.start] if unit.start is not None else []
    others += [other for column in columns for other in references(column, unit, units)]
    return {other.digest for other in others}


def _run_cost(unit: Unit, columns: Sequence[StudyColumn], n: int | None) -> RunCost:
    from hardtack.models.facts import measure
    from hardtack.training import read_recipe

    recipe = read_recipe(None, **unit.settings)
    train, test, classes, pixels = _data_facts(unit)
    size = recipe.data.image_size or pixels
    facts = measure(recipe.model.name, image_size=size, num_classes=classes, **dict(recipe.model.options))
    macs = facts.gflops * 1e9
    attack, update = _passes(unit)
    images = recipe.train.epochs * train
    training = images * macs * (attack.forwards + attack.backwards + update.forwards + 2 * update.backwards)
    evaluation = sum(_column_work(column, min(filter(None, (n, test))), classes) for column in columns) * macs
    return RunCost(
        label=unit.label, measured_rate=h200_rate(recipe.model.name, size, recipe.model.options),
        parameters=facts.parameters, per_image=macs, images=images, training=training,
        evaluation=evaluation,
        passes=f"{attack.forwards + update.forwards}+{attack.backwards + update.backwards}",
    )  # fmt: skip


def _data_facts(unit: Unit) -> tuple[int, int, int, int]:
    """Training images, test images, classes and pixels: of the data where it is here, else as known."""
    from hardtack.data import DataConfig, load_data

    data = unit.settings.get("data") or {}
    data = {"name": data} if isinstance(data, str) else dict(data)
    known = KNOWN_SETS.get(str(data.get("name", "digits")).rpartition(":")[2].rpartition("/")[2])
    limit = data.get("limit")
    if known is not None:
        held_out = float(data.get("validation", 0.1))
        train = min(known[0], limit or known[0])
        return round(train * (1 - held_out)), min(known[1], limit or known[1]), known[2], known[3]
    own = {key: value for key, value in data.items() if key not in ("extra", "synthetic", "repeats")}
    try:
        config: DataConfig = build(DataConfig, own, path="data")
        train_set, test_set = (load_data(config, split) for split in ("train", "test"))
    except UserError as error:
        raise UserError(f"{unit.label}: the size of data set '{data.get('name')}' is not known: {error}") from None
    return len(train_set), len(test_set), train_set.num_classes, train_set.image_shape[-1]


def _passes(unit: Unit) -> Any:
    keys = ("objective", "sharpness", "penalty")
    return _counted(repr([(key, unit.settings.get(key)) for key in keys]), unit)


_COUNTED: dict[str, Any] = {}


def _counted(key: str, unit: Unit) -> Any:
    from hardtack.training import read_recipe
    from hardtack.training.passes import passes_per_image

    if key not in _COUNTED:
        _COUNTED[key] = passes_per_image(read_recipe(None, **unit.settings))
    return _COUNTED[key]


def _column_work(column: StudyColumn, n: int, classes: int) -> float:
    """Forward passes that a column takes at most; a backward pass to the input counts as one more."""
    if column.kind in ("worst_of", "fact"):
        return 0.0
    if column.kind == "analysis":
        analysis = choose(analyses, {"name": column.analysis, **column.settings}, path=str(column.analysis))
        return 3.0 * min(n, analysis.n) if analysis.takes_images else 0.0
    own = stated_column(column)
    settings = own.stated.settings
    return _image_passes(repr(sorted(settings.items())), settings, classes) * min(filter(None, (n, own.n)))


@functools.cache
def _rate() -> tuple[float, str]:
    """Multiply-adds a second that this machine reaches in forward and backward passes of a small transformer."""
    import torch

    from hardtack.base.cost import device_name, timed
    from hardtack.models import load_model
    from hardtack.models.facts import known

    runtime, name = Runtime(), "vit_tiny_patch4_32"
    device = runtime.torch_device
    batch = 512 if device.type == "cuda" else 16
    model = load_model(name, num_classes=10, seed=0).to(device)
    x = torch.rand(batch, 3, 32, 32, device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            model(x).float().logsumexp(1).sum().backward()

    step()
    return 3 * batch * known()[name].gflops * 1e9 / timed(step, 3), device_name(runtime)


_PASSES: dict[str, float] = {}


def _image_passes(key: str, settings: Mapping[str, Any], classes: int) -> float:
    from hardtack.evaluation.passes import passes_of_settings

    if key not in _PASSES:
        _PASSES[key] = passes_of_settings(settings, classes)
    return _PASSES[key]
