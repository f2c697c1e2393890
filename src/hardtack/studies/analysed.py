"""Columns that are scores or arrays of analyses, or plain facts about a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.config import build, choose
from hardtack.base.digests import json_text
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.results import Finding, bootstrap, per_image, stored_verdicts
from hardtack.studies.cells import Measured
from hardtack.studies.column import StudyColumn
from hardtack.studies.facts import fact_of
from hardtack.studies.measuring import Failure, Measuring, from_result, guarded, in_units
from hardtack.studies.unit import Unit, references, resolve_rows


def analysed_columns(
    unit: Unit, folder: Path, wanted: Sequence[StudyColumn], measuring: Measuring, train: Callable[[Unit], object]
) -> Iterator[tuple[str, Measured | Failure]]:
    """Columns of analyses; those with the same settings are one analysis. `train` trains other rows that one names."""
    findings: dict[str, Finding] = {}

    def measure(column: StudyColumn) -> Measured:
        settings = resolve_rows(column.settings, unit, measuring.units, measuring.root)
        key = json_text([column.analysis, settings, column.test_list])
        if key not in findings:
            for other in references(column, unit, measuring.units):
                train(other)
            findings[key] = _analyze(folder, column, settings, measuring)
        return in_units(_score(unit, folder, column, findings[key]), column)

    for column in wanted:
        yield column.name, guarded(functools.partial(measure, column))


def fact_column(unit: Unit, folder: Path, column: StudyColumn) -> Measured | Failure:
    """A plain number about the run."""
    return guarded(lambda: Measured(seed=unit.seed, value=fact_of(folder, str(column.fact)), run=folder.name))


def _analyze(folder: Path, column: StudyColumn, settings: Mapping[str, Any], measuring: Measuring) -> Finding:
    from hardtack.analysis import analyze
    from hardtack.data.folder import find_test_list
    from hardtack.evaluation.target import TargetConfig, complete, load_target

    name = str(column.analysis)
    analysis = choose(analyses, {"name": name, **settings}, path=name)
    if analysis.takes_images:
        analysis = dataclasses.replace(analysis, n=measuring.images(analysis.n))
    words = {**measuring.words(), **({"n": analysis.n} if analysis.takes_images else {})}
    config: TargetConfig = build(TargetConfig, complete(folder, words))
    if (key := column.test_list) is not None and config.data is not None:
        path = measuring.folders.get(key, column.folders[key])
        if (place := find_test_list(config.data, path, given=key in measuring.folders)) is not None:
            config = dataclasses.replace(config, data=dataclasses.replace(config.data, test_list=str(place)))
    target = load_target(folder, config, with_images=analysis.takes_images)
    return analyze(
        target.model, target.images, analysis, runtime=config.runtime, folder=target.folder, quiet=measuring.quiet,
        provenance=dataclasses.replace(target.provenance, words=(name,)),
    )  # fmt: skip


def _score(unit: Unit, folder: Path, column: StudyColumn, finding: Finding) -> Measured:
    if column.array is not None:
        return _reduced(unit, folder, column, finding)
    result = finding.of(str(column.metric), column.column)
    if result is None:
        known = sorted({" ".join(filter(None, (r.metric, r.extra.get("column")))) for r in finding.results})
        raise UserError(f"the analysis {finding.id} has no {column.metric} {column.column}; it has {', '.join(known)}")
    vector = None
    if result.verdicts is not None:
        columns = stored_verdicts(folder, result)
        values = per_image(result, columns)
        vector = None if values is None else dict(zip(columns["index"].tolist(), values.tolist(), strict=True))
    return from_result(unit, result, vector, folder)


_REDUCED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda values: values.mean(axis=1),
    "std": lambda values: values.std(axis=1),
    "first": lambda values: values[:, 0],
    "last": lambda values: values[:, -1],
    "middle": lambda values: values[:, 1:-1].mean(axis=1),
    "min": lambda values: values.min(axis=1),
    "max": lambda values: values.max(axis=1),
    # how far an image is from the mean over images, in each place; 0 where all images are alike
    "deviation": lambda values: np.abs(values - values.mean(axis=0)).mean(axis=1),
}


def _reduced(unit: Unit, folder: Path, column: StudyColumn, finding: Finding) -> Measured:
    """One value per image from an array whose first axis runs over images, or with `spread` a single value."""
    if column.array not in finding.arrays:
        known = ", ".join(sorted(finding.arrays))
        raise UserError(f"the analysis {finding.id} has no array '{column.array}'; it has {known}")
    values = np.asarray(finding.arrays[str(column.array)]).astype(float)
    values = values.reshape(len(values), -1)
    if column.reduce == "spread":  # the standard deviation over images and layers together: no number for each image
        return Measured(
            seed=unit.seed, value=float(values.std()), n=len(values), run=folder.name, evaluation=finding.id,
            flags=finding.results[0].flags if finding.results else (),
        )  # fmt: skip
    vector = _REDUCED[column.reduce](values)
    low, high = bootstrap(vector) if len(vector) > 1 else (None, None)
    index = finding.arrays.get("index")
    known_images = index is not None and len(index) == len(vector)
    order = np.argsort(index) if known_images and index is not None else np.arange(len(vector))
    flags = finding.results[0].flags if finding.results else ()
    return Measured(
        seed=unit.seed, value=float(vector.mean()), n=len(vector), low=low, high=high, run=folder.name, flags=flags,
        evaluation=finding.id, index=np.asarray(index)[order] if known_images else None,
        vector=vector[order] if known_images else None,
    )  # fmt: skip
