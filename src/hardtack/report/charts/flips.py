"""Perturbation sequences: how often the prediction flips from frame to frame, by type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import Subject, described, file_of, side_by_side, where
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
    groups = side_by_side(runs, lambda result: result.metric in (FLIPS, *SUMS), _alike)
    kept = [subjects for subjects in groups if any(subject.of(FLIPS) for subject in subjects)]
    return [_flip_chart(place, subjects) for place, subjects in enumerate(kept)]


def _alike(result: Result) -> tuple[Any, ...]:
    return (*where(result), str(result.attack_settings.get("constants", "")))


def _flip_chart(place: int, subjects: Sequence[Subject]) -> dict[str, Any]:
    single = [[result for result in subject.results if result.metric == FLIPS] for subject in subjects]
    types = list(dict.fromkeys(str(result.attack) for found in single for result in found))
    results = [[[one for one in found if one.attack == name] for name in types] for found in single]
    first = next(found[0] for found in single if found)
    return paired_bars_chart(
        subjects,
        [wording.spaced(name) for name in types],
        results,
        id=f"flips-{place}",
        file=file_of(first),
        title="How often the prediction flips",
        baseline=False,
        sums=_sums(subjects),
        caption=described(first, "lower is better", "intervals: 95%"),
    )


def _sums(subjects: Sequence[Subject]) -> dict[str, Any] | None:
    """Mean and mFR of every run, with the flag the latter carries: AlexNet's constants are confirmed nowhere."""
    metrics = [metric for metric in SUMS if any(subject.of(metric) for subject in subjects)]
    rows = []
    for subject in subjects:
        found = [subject.of(metric) for metric in metrics]
        cells = [wording.with_interval(result) if result else "—" for result in found]
        rows.append({"run": subject.run, "name": subject.name, "cells": cells})
    flagged = {
        metric: next((flag for subject in subjects if (one := subject.of(metric)) for flag in one.flags), None)
        for metric in metrics
    }
    head = [{"name": wording.metric_name(metric), "flag": flagged[metric]} for metric in metrics]
    return {"head": head, "rows": rows} if metrics else None
