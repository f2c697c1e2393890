"""Corruptions: accuracy by type and severity as a heat map, and every type against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, comparable_results, described, file_of, triple, where
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
        settings = result.attack_settings
        how = (str(settings.get(name)) for name in ("constants", "files", "jpeg"))
        return (*where(result), *how, overlays.get(result.evaluation))

    charts = []
    for place, compared_runs in enumerate(comparable_results(runs, _is_cell, alike)):
        charts += [_heat_map(place, compared_runs), _type_bars(place, compared_runs)]
    return charts


def _is_cell(result: Result) -> bool:
    return result.metric == ONE_VIEW and {"type", "severity"} <= set(result.attack_settings)


def _about(compared_runs: Sequence[ComparedRun]) -> str:
    first = compared_runs[0].results[0]
    constants = first.attack_settings.get("constants")
    settings = _merged(compared_runs)
    return described(first, f"{constants} constants" if constants else "", *wording.making(settings))


def _merged(compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """The settings of all cells: only frost's say what is laid over the images."""
    return {
        name: value
        for measured in compared_runs
        for result in measured.results
        for name, value in result.attack_settings.items()
    }


def _file(compared_runs: Sequence[ComparedRun]) -> str:
    first, jpeg = compared_runs[0].results[0], _merged(compared_runs).get("jpeg")
    return file_of(first, source_of(first), f"jpeg{jpeg}" if jpeg else "")


def _types(compared_runs: Sequence[ComparedRun]) -> list[str]:
    return list(
        dict.fromkeys(result.attack_settings["type"] for compared in compared_runs for result in compared.results)
    )


def _heat_map(place: int, compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    types = _types(compared_runs)
    severities = sorted(
        {result.attack_settings["severity"] for compared in compared_runs for result in compared.results}
    )
    views = [_map(compared, types, severities) for compared in compared_runs]
    return heat_chart(
        id=f"corruptions-{place}",
        file=_file(compared_runs),
        title="Accuracy by corruption and severity",
        x="severity",
        rows=[wording.spaced(name) for name in types],
        columns=[str(severity) for severity in severities],
        views=views,
        label="Run",
        caption=_about(compared_runs),
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


def _map(compared: ComparedRun, types: Sequence[str], severities: Sequence[int]) -> dict[str, Any]:
    grid = [[compared.of(ONE_VIEW, type=name, severity=severity) for severity in severities] for name in types]
    columns = list(zip(*grid, strict=True))
    return {
        "run": compared.run,
        "name": compared.name,
        "file": compared.name,
        "cells": [[triple(measured) if measured else None for measured in row] for row in grid],
        "row_means": [_mean(row) for row in grid],
        "column_means": [_mean(column) for column in columns],
        "mean": _mean([measured for row in grid for measured in row]),
    }


def _mean(results: Sequence[Result | None]) -> float | None:
    """Only of all of them: a mean over the severities that happen to be there would compare with nothing."""
    values = [result.value for result in results if result is not None]
    return rounded(float(np.mean(values))) if values and len(values) == len(results) else None


def _words(value: float | None) -> str:
    return wording.number(value, ONE_VIEW)


def _type_bars(place: int, compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    types = _types(compared_runs)
    results = [
        [[measured for measured in compared.results if measured.attack_settings["type"] == name] for name in types]
        for compared in compared_runs
    ]
    severities = {len(cell) for cells in results for cell in cells if cell}
    depth = f"mean over {severities.pop()} severities" if len(severities) == 1 else "mean over the severities measured"
    return paired_bars_chart(
        compared_runs,
        [wording.spaced(name) for name in types],
        results,
        id=f"corruption-types-{place}",
        file=_file(compared_runs),
        title="Accuracy by corruption",
        caption=f"{depth} · {_about(compared_runs)} · intervals: 95%",
    )
