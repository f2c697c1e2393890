"""A study at one scale: the rows, trainings and columns that are left there, with the scale's settings over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hardtack.base.config import merge
from hardtack.base.errors import UserError, did_you_mean
from hardtack.studies.column import StudyColumn, changed_column, column_values, read_column
from hardtack.studies.study import SCALES, Row, Scale, Study, Training

Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ScaledStudy:
    """`study` as written, and what of it is trained and measured at `scale`."""

    study: Study
    scale: Scale
    rows: dict[str, Row]
    trainings: dict[str, Training]
    columns: dict[str, StudyColumn]

    def columns_of(self, training: str) -> list[StudyColumn]:
        """The columns that measure this training, in the order of the table."""
        return [column for column in self.columns.values() if column.training == training]

    def trainings_of(self, row: Row) -> list[Training]:
        """The trainings of a row that some column measures or another row starts from."""
        return [training for training in self.trainings.values() if training.name not in row.skip]

    def settings(self, row: Row, training: Training, recipe: Settings | None = None) -> Settings:
        """The settings of one run: recipe, training, row and the row's own for it, then those of the scale.

        What the scale keeps of the study's settings comes after the scale's own for all runs.
        """
        scale, changed = self.scale, self.scale.rows.get(row.name) or {}
        stated = _merged(training.settings, row.settings, _sections(row.trainings.get(training.name)))
        kept = [_part(stated, key.split(".")) for key in scale.keep_settings]
        return _merged(
            with_stand_in(_merged(recipe or {}, stated), scale.models), scale.settings, *kept,
            _sections(scale.trainings.get(training.name)),
            _sections(changed), _sections(changed.get("trainings", {}).get(training.name)),
        )  # fmt: skip

    def start(self, row: Row, training: Training) -> str | None:
        """The run whose weights this one starts from, as `[STUDY:]ROW[/TRAINING]`."""
        changed = self.scale.rows.get(row.name) or {}
        for part in (changed.get("trainings", {}).get(training.name), changed, row.trainings.get(training.name)):
            if part and "start" in part:
                return None if part["start"] is None else str(part["start"])
        return row.start


def at_scale(study: Study, name: str, *, rows: Iterable[str] = ()) -> ScaledStudy:
    """The study at the scale of this name; `rows` are the only ones wanted, if any are given."""
    if name not in SCALES:
        raise UserError(f"there is no scale '{name}'{did_you_mean(name, SCALES)}; scales: {', '.join(SCALES)}")
    scale = study.scales[name]
    wanted = list(rows)
    for row in wanted:
        if row not in study.rows:
            raise UserError(f"study {study.name} has no row '{row}'{did_you_mean(row, study.rows)}")
    kept = [row for row in study.rows if row not in scale.rows or scale.rows[row] is not None]
    kept = [row for row in kept if not scale.keep or row in scale.keep]
    absent = [row for row in wanted if row not in kept]
    if absent:
        raise UserError(
            f"study {study.name} does not run {', '.join(absent)} at scale {name}; it runs {', '.join(kept)}"
        )
    trainings = {
        key: training for key, training in study.trainings.items() if scale.trainings.get(key, training) is not None
    }
    columns = {key: _scaled_column(column, scale, list(trainings)) for key, column in study.columns.items()}
    return ScaledStudy(
        study=study, scale=scale, trainings=trainings,
        rows={row: study.rows[row] for row in kept if not wanted or row in wanted},
        columns={key: column for key, column in columns.items() if column is not None and column.training in trainings},
    )  # fmt: skip


def with_stand_in(settings: Settings, models: Mapping[str, Any]) -> Settings:
    """Settings whose model is the one that stands for it at this scale; a stand-in with options has only these."""
    model = settings.get("model")
    model = {"name": model} if isinstance(model, str) else dict(model or {})
    stand_in = models.get(str(model.get("name")))
    if stand_in is None:
        return settings
    if isinstance(stand_in, str):
        return {**settings, "model": {**model, "name": stand_in}}
    return {**settings, "model": {**model, "options": {}, **stand_in}}


def _part(settings: Any, keys: list[str]) -> Settings:
    """The part of nested settings below these keys; empty where it is not stated."""
    if not keys or not isinstance(settings, Mapping) or keys[0] not in settings:
        return {}
    below = settings[keys[0]] if len(keys) == 1 else _part(settings[keys[0]], keys[1:])
    return {keys[0]: below} if len(keys) == 1 or below else {}


def _merged(*layers: Settings) -> Settings:
    merged: Settings = {}
    for layer in layers:
        merged = merge(merged, layer)
    return merged


def _scaled_column(column: StudyColumn, scale: Scale, trainings: list[str]) -> StudyColumn | None:
    if column.name not in scale.columns:
        return column
    over = scale.columns[column.name]
    return None if over is None else read_column(column.name, changed_column(column_values(column), over), trainings)


def _sections(values: Settings | None) -> Settings:
    """Settings of a recipe only, without keys about the row."""
    return {key: value for key, value in (values or {}).items() if key not in ("trainings", "start", "title", "recipe")}
