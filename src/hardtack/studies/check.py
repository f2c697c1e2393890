"""What can be known to be wrong before a study trains anything: settings of runs, models, evaluations and analyses.

`check_study` builds the settings of every run and of every column, and the model of every run without its weights in
memory. A study that would fail after hours of training fails at once, with the row or column that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hardtack.base.config import build, choose
from hardtack.base.digests import json_text
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import analyses
from hardtack.studies.column import StudyColumn
from hardtack.studies.evaluated import stated_column
from hardtack.studies.rows import in_order
from hardtack.studies.scaled import ScaledStudy
from hardtack.studies.unit import ROW_REFERENCE, Unit, references

CLASSES = 10  # enough for every head; the number of classes is that of the data, which need not be here


def check_study(scaled: ScaledStudy, units: Iterable[Unit]) -> None:
    """Raise a UserError that names the row or column whose settings cannot work."""
    units = list(units)
    built: set[str] = set()
    for unit in in_order(units):
        try:
            _check_run(unit, built)
        except UserError as error:
            raise UserError(f"{unit.label}: {error}") from None
    for column in scaled.columns.values():
        try:
            _check_column(column)
            for unit in units:
                if unit.training == column.training:
                    references(column, unit, units)
        except UserError as error:
            raise UserError(f"study {scaled.study.name}, column {column.name}: {error}") from None


def _check_run(unit: Unit, built: set[str]) -> None:
    """The recipe of a unit, and its network; `built` has the networks that were built before."""
    import torch

    from hardtack.models.catalog import make_body
    from hardtack.models.facts import uninitialised
    from hardtack.training import read_recipe

    recipe = read_recipe(None, **unit.settings)
    model, size = recipe.model, recipe.data.image_size
    key = json_text([model.name, size, dict(model.options)])
    if key in built:
        return
    with torch.device("meta"), uninitialised():
        make_body(model.name, num_classes=CLASSES, image_size=size, options=dict(model.options))
    built.add(key)


def _check_column(column: StudyColumn) -> None:
    if column.kind == "analysis":
        choose(analyses, {"name": column.analysis, **_without_references(column.settings)}, path=str(column.analysis))
    elif column.kind in ("suite", "protocol"):
        _check_evaluation(column)


def _check_evaluation(column: StudyColumn) -> None:
    from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings
    from hardtack.evaluation.suite import make_suite

    own = stated_column(column)
    for key in (own.stated.data, own.stated.official):
        if key is not None and key not in own.folders:
            raise UserError(f"'{key}' is not listed under `folders:`{did_you_mean(key, own.folders)}")
    config: EvaluationConfig = build(
        EvaluationConfig, gather_suite_settings(_without_references(own.stated.settings)), path=f"columns.{column.name}"
    )
    list(make_suite(config).threat_stages(config, 0))  # builds the attacks


def _without_references(value: Any) -> Any:
    """Settings in which other rows, whose folders do not exist yet, are named by plain text."""
    if isinstance(value, dict):
        return {key: _without_references(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_references(item) for item in value]
    return value.removeprefix(ROW_REFERENCE) if isinstance(value, str) else value
