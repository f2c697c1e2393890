"""Perturbation sequences: how often the prediction flips from frame to frame, by type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, comparable_results, described, file_of, where
from hardtack.report.charts.paired_bars import paired_bars_chart
from hardtack.report.charts.section import Section
from hardtack.results import Result, Run

FLIPS = "flip_probability"
SUMS = ("mean_flip_probability", "mean_flip_rate")


@charts.register(
    "flips",
    section=Section(id="flips", short="Sequences", title="Perturbation sequences", order=40),
)
def flip_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups = comparable_results(runs, lambda result: result.metric in (FLIPS, *SUMS), _alike)
    kept = [compared_runs for compared_runs in groups if any(compared.of(FLIPS) for compared in compared_runs)]
    return [_flip_chart(place, compared_runs) for place, compared_runs in enumerate(kept)]


def _alike(result: Result) -> tuple[Any, ...]:
    return (*where(result), str(result.attack_settings.get("constants", "")))


def _flip_chart(place: int, compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    single = [[result for result in compared.results if result.metric == FLIPS] for compared in compared_runs]
    types = list(dict.fromkeys(str(result.attack) for flip_results in single for result in flip_results))
    results = [
        [[measured for measured in flip_results if measured.attack == name] for name in types]
        for flip_results in single
    ]
    first = next(flip_results[0] for flip_results in single if flip_results)
    return paired_bars_chart(
        compared_runs,
        [wording.spaced(name) for name in types],
        results,
        id=f"flips-{place}",
        file=file_of(first),
        title="How often the prediction flips",
        baseline=False,
        sums=_sums(compared_runs),
        caption=described(first, "lower is better", "intervals: 95%"),
    )


def _sums(compared_runs: Sequence[ComparedRun]) -> dict[str, Any] | None:
    """Mean and mFR of every run, with the flag the latter carries: AlexNet's constants are confirmed nowhere."""
    metrics = [metric for metric in SUMS if any(compared.of(metric) for compared in compared_runs)]
    rows = []
    for compared in compared_runs:
        flip_results = [compared.of(metric) for metric in metrics]
        cells = [wording.with_interval(result) if result else "—" for result in flip_results]
        rows.append({"run": compared.run, "name": compared.name, "cells": cells})
    flagged = {
        metric: next(
            (flag for compared in compared_runs if (measured := compared.of(metric)) for flag in measured.flags), None
        )
        for metric in metrics
    }
    head = [{"name": wording.metric_name(metric), "flag": flagged[metric]} for metric in metrics]
    return {"head": head, "rows": rows} if metrics else None
