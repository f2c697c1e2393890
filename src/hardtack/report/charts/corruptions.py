"""Corruptions: accuracy by type and severity as a heat map, and every type against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import Subject, described, file_of, side_by_side, triple, where
from hardtack.report.charts.paired_bars import paired_bars_chart
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.heat import heat_chart
from hardtack.results import ONE_VIEW, Result, Run, source_of


@charts.register(
    "corruptions",
    section=Section(id="corruptions", short="Corruptions", title="Common corruptions", layout="charts two", order=30),
)
def corruption_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A heat map and bars for each set of images; official and regenerated ones never share them."""
    overlays = {
        result.evaluation: str(result.attack_settings["overlays"])
        for run in runs
        for result in filter(_is_cell, run.results)
        if "overlays" in result.attack_settings
    }

    def alike(result: Result) -> tuple[Any, ...]:
        """How the images were made; what frost is laid over them, which only its own cells say, counts for all."""
        known = result.attack_settings
        how = (str(known.get(name)) for name in ("constants", "files", "jpeg"))
        return (*where(result), *how, overlays.get(result.evaluation))

    charts = []
    for place, subjects in enumerate(side_by_side(runs, _is_cell, alike)):
        charts += [_heat_map(place, subjects), _type_bars(place, subjects)]
    return charts


def _is_cell(result: Result) -> bool:
    return result.metric == ONE_VIEW and {"type", "severity"} <= set(result.attack_settings)


def _about(subjects: Sequence[Subject]) -> str:
    first = subjects[0].results[0]
    constants = first.attack_settings.get("constants")
    settings = _merged(subjects)
    return described(first, f"{constants} constants" if constants else "", *wording.making(settings))


def _merged(subjects: Sequence[Subject]) -> dict[str, Any]:
    """The settings of all cells: only frost's say what is laid over the images."""
    return {name: value for one in subjects for result in one.results for name, value in result.attack_settings.items()}


def _file(subjects: Sequence[Subject]) -> str:
    first, jpeg = subjects[0].results[0], _merged(subjects).get("jpeg")
    return file_of(first, source_of(first), f"jpeg{jpeg}" if jpeg else "")


def _types(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(result.attack_settings["type"] for one in subjects for result in one.results))


def _heat_map(place: int, subjects: Sequence[Subject]) -> dict[str, Any]:
    types = _types(subjects)
    severities = sorted({result.attack_settings["severity"] for one in subjects for result in one.results})
    views = [_map(subject, types, severities) for subject in subjects]
    return heat_chart(
        id=f"corruptions-{place}",
        file=_file(subjects),
        title="Accuracy by corruption and severity",
        x="severity",
        rows=[wording.spaced(name) for name in types],
        columns=[str(severity) for severity in severities],
        views=views,
        label="Run",
        caption=_about(subjects),
        numbers=[
            numbers(
                ["Corruption", *(f"severity {severity}" for severity in severities), "mean"],
                [
                    [wording.spaced(name), *(_words(cell and cell[0]) for cell in cells), _words(mean)]
                    for name, cells, mean in zip(types, view["cells"], view["row_means"], strict=True)
                ],
                view["name"],
            )
            for view in views
        ],
    )


def _map(subject: Subject, types: Sequence[str], severities: Sequence[int]) -> dict[str, Any]:
    found = [[subject.of(ONE_VIEW, type=name, severity=severity) for severity in severities] for name in types]
    columns = list(zip(*found, strict=True))
    return {
        "run": subject.run,
        "name": subject.name,
        "file": subject.name,
        "cells": [[triple(one) if one else None for one in row] for row in found],
        "row_means": [_mean(row) for row in found],
        "column_means": [_mean(column) for column in columns],
        "mean": _mean([one for row in found for one in row]),
    }


def _mean(results: Sequence[Result | None]) -> float | None:
    """Only of all of them: a mean over the severities that happen to be there would compare with nothing."""
    values = [result.value for result in results if result is not None]
    return rounded(float(np.mean(values))) if values and len(values) == len(results) else None


def _words(value: float | None) -> str:
    return wording.number(value, ONE_VIEW)


def _type_bars(place: int, subjects: Sequence[Subject]) -> dict[str, Any]:
    types = _types(subjects)
    results = [
        [[one for one in subject.results if one.attack_settings["type"] == name] for name in types]
        for subject in subjects
    ]
    severities = {len(cell) for cells in results for cell in cells if cell}
    depth = f"mean over {severities.pop()} severities" if len(severities) == 1 else "mean over the severities measured"
    return paired_bars_chart(
        subjects,
        [wording.spaced(name) for name in types],
        results,
        id=f"corruption-types-{place}",
        file=_file(subjects),
        title="Accuracy by corruption",
        caption=f"{depth} · {_about(subjects)} · intervals: 95%",
    )
