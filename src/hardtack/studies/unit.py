"""A unit of a study: one row, one training, one seed. It is one run, named by a digest of all settings that define it.

Two studies whose rows are trained with the same settings share the run: its folder is found by the digest alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardtack.base.config import merge, nested, read_yaml
from hardtack.base.digests import file_digest, json_digest
from hardtack.base.errors import UserError, did_you_mean
from hardtack.studies.column import StudyColumn
from hardtack.studies.scaled import ScaledStudy, at_scale
from hardtack.studies.study import SECTIONS, Row, Training, load_study

MODELS = "models"  # the folder of all runs of all studies
DIGITS = 12
ROW_REFERENCE = "row:"  # `row:NAME` in the settings of a column: the run folder of another row
_CODE = re.compile(r"(.+\.py)(:\w+)?")
# settings that change where or how fast a run is computed, and not what it comes to
_INCIDENTAL = {
    "data": ("root", "workers", "memory_limit_mb", "stream"), "runtime": ("device", "compile", "shard"),
    "train": ("log_every", "checkpoint_every_s", "track", "checkpoint_blocks"),
}  # fmt: skip

Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One run: `settings` are all of its recipe; `start` is the unit whose weights it starts from."""

    study: str
    scale: str
    row: str
    training: str
    seed: int  # 0, 1, 2 …: added to the recipe's own seed
    settings: Settings = field(compare=False)
    start: Unit | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.study}:{self.row}/{self.training}" + (f" seed {self.seed}" if self.seed else "")

    @property
    def digest(self) -> str:
        """Of everything that decides what the run comes to."""
        start = self.start.digest if self.start else None
        return json_digest([_decisive(self.settings), start, *_code_digests(self.settings)])[:DIGITS]

    def folder(self, root: Path) -> Path:
        """Its run folder below the folder of the studies: that of any study with the same settings, else a new one."""
        existing = sorted((root / MODELS).glob(f"*-{self.digest}"))
        name = "-".join((*self.study.split("/"), self.row, self.training, self.scale, f"s{self.seed}", self.digest))
        return existing[0] if existing else root / MODELS / name

    def recipe_values(self, root: Path, home: Path | None = None) -> Settings:
        """The recipe of the run: its settings, its folder, and the weights that it starts from.

        `home` is the folder of the studies that the recipe names, where `root` is a copy of it on another machine.
        """
        values, models = dict(self.settings), (home or root) / MODELS
        if self.start is not None:
            values = merge(values, {"model": {"weights": str(models / self.start.folder(root).name)}})
        name = self.folder(root).name
        return {**values, "name": name, "output": str(models / name)}


def units_of(scaled: ScaledStudy, *, seeds: int = 1, words: Mapping[str, Any] | None = None) -> list[Unit]:
    """Every run of the table: one seed of all rows after the other, so that whole tables come early."""
    return [
        _unit(scaled, row, training, seed, words or {})
        for seed in range(seeds)
        for row in scaled.rows.values()
        for training in scaled.trainings_of(row)
    ]


def find_unit(reference: str, *, scale: str, seed: int = 0, words: Mapping[str, Any] | None = None) -> list[Unit]:
    """The units named by `STUDY:ROW` or `STUDY:ROW/TRAINING`; without a training, one for each."""
    name, _, place = reference.partition(":")
    study = load_study(name)
    row, _, training = place.partition("/")
    scaled = at_scale(study, scale, rows=[row])
    names = [item.name for item in scaled.trainings_of(scaled.rows[row])]
    if not names:
        raise UserError(f"row {name}:{row} is not trained: its numbers are only quoted from the paper")
    if training and training not in names:
        raise UserError(f"row {name}:{row} has no training '{training}'{did_you_mean(training, names)}; it has {names}")
    return [
        _unit(scaled, scaled.rows[row], scaled.trainings[item], seed, words or {})
        for item in names
        if not training or item == training
    ]


def resolve_rows(value: Any, unit: Unit, units: Sequence[Unit], root: Path) -> Any:
    """Settings in which every `row:NAME[/TRAINING]` is the folder of that row's run, of the same seed."""
    if isinstance(value, Mapping):
        return {key: resolve_rows(item, unit, units, root) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_rows(item, unit, units, root) for item in value]
    if isinstance(value, str) and value.startswith(ROW_REFERENCE):
        return str(referenced(value, unit, units).folder(root))
    return value


def references(column: StudyColumn, unit: Unit, units: Sequence[Unit]) -> list[Unit]:
    """The units whose models a column looks at beside its own."""
    return [referenced(text, unit, units) for text in _texts(column.settings) if text.startswith(ROW_REFERENCE)]


def referenced(text: str, unit: Unit, units: Sequence[Unit]) -> Unit:
    """The unit that `row:NAME[/TRAINING]` means in the settings of a column of `unit`."""
    row, _, training = text.removeprefix(ROW_REFERENCE).partition("/")
    for other in units:
        if (other.row, other.training, other.seed) == (row, training or unit.training, unit.seed):
            return other
    rows = sorted({other.row for other in units})
    raise UserError(f"{unit.label}: '{text}' names no row that is trained here{did_you_mean(row, rows)}")


# ---------------------------------------------------------------- settings


def _unit(
    scaled: ScaledStudy,
    row: Row,
    training: Training,
    seed: int,
    words: Mapping[str, Any],
    descendants: tuple[str, ...] = (),
) -> Unit:
    own = f"{scaled.study.name}:{row.name}/{training.name}"
    if own in descendants:
        raise UserError(f"{own} starts from itself: {' from '.join((*descendants, own))}")
    settings = merge(scaled.settings(row, training, _recipe(row.recipe or training.recipe)), nested(words))
    first = scaled.scale.seed if scaled.scale.seed is not None else _seed(settings)
    settings = merge(settings, {"runtime": {"seed": first + seed}})
    start = scaled.start(row, training)
    return Unit(
        study=scaled.study.name, scale=scaled.scale.name, row=row.name, training=training.name, seed=seed,
        settings={key: value for key, value in settings.items() if key in SECTIONS},
        start=_start(start, scaled, training.name, seed, words, (*descendants, own)) if start else None,
    )  # fmt: skip


def _recipe(name: str | None) -> Settings:
    from hardtack.commands.recipe_files import recipe_file

    return read_yaml(recipe_file(name)) if name else {}


def _seed(settings: Mapping[str, Any]) -> int:
    return int((settings.get("runtime") or {}).get("seed", 0))


def _start(
    reference: str,
    scaled: ScaledStudy,
    training: str,
    seed: int,
    words: Mapping[str, Any],
    descendants: tuple[str, ...],
) -> Unit:
    """The unit that a row starts from: of the same study, or of another one at the same scale."""
    name, colon, place = reference.rpartition(":")
    own = not colon or name == scaled.study.name
    study = scaled.study if own else load_study(name)
    row, _, chosen = place.partition("/")
    if row not in study.rows:
        raise UserError(f"start: study {study.name} has no row '{row}'{did_you_mean(row, study.rows)}")
    other = at_scale(study, scaled.scale.name, rows=[row])
    trainings = [item.name for item in other.trainings_of(other.rows[row])]
    chosen = chosen or (training if training in trainings else trainings[-1])
    if chosen not in trainings:
        raise UserError(f"start: {study.name}:{row} has no training '{chosen}'{did_you_mean(chosen, trainings)}")
    return _unit(other, other.rows[row], other.trainings[chosen], seed, words, descendants)


def _decisive(settings: Mapping[str, Any]) -> Settings:
    """The settings that decide what a run comes to; `model: NAME` is written out as `{name: NAME}`."""
    decisive: Settings = {}
    for section, values in settings.items():
        values = {"name": values} if isinstance(values, str) else values
        left_out = _INCIDENTAL.get(section, ())
        decisive[section] = {key: value for key, value in (values or {}).items() if key not in left_out}
    return {section: values for section, values in sorted(decisive.items()) if values}


def _code_digests(settings: Mapping[str, Any]) -> list[str]:
    """Of the Python files that the settings name (`model: mine.py:build`): changed code is another run."""
    matches = (_CODE.fullmatch(text) for text in _texts(settings))
    files = sorted({Path(match.group(1)).expanduser() for match in matches if match is not None})
    return [file_digest(path) for path in files if path.is_file()]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
