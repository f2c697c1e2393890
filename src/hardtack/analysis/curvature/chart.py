"""Charts of the curvature of the loss at the trained weights: largest eigenvalues of the Hessian, and sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.analysis.landscape.chart import file_name, groups, loss_name, model_names
from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_analyses import AnalysedRun, charts_of_groups, described
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import Line, line, lines_chart
from hardtack.results import Run


@charts.register("curvature", section="landscape")
def curvature_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A chart for each set of images and kind of loss."""
    return charts_of_groups(groups(runs, "curvature"), lambda place, analysed: [_curvature(place, analysed)])


def _curvature(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """The largest eigenvalues as curves; trace and sharpness as a table."""
    top = max(len(entry.finding.arrays["eigenvalues"]) for entry in analysed)
    settings = analysed[0].finding.settings
    series = []
    for entry in analysed:
        values, errors = entry.finding.arrays["eigenvalues"].tolist(), entry.finding.arrays["errors"].tolist()
        points = [
            [rank + 1, *(float(f"{v:.5g}") for v in (value, value - error, value + error))]
            for rank, (value, error) in enumerate(zip(values, errors, strict=True))
            if np.isfinite(value)
        ]
        series.append(line(entry.run, entry.name, points, band=True, marks=True))
    heads = {
        "Largest eigenvalue": ("hessian_eigenvalue", "1"),
        "Lowest": ("hessian_eigenvalue", "lowest"),
        "Trace": ("hessian_trace", ""),
        "Sharpness, one step": ("sharpness", "sam"),
        f"Worst of {settings['ascent']} steps": ("sharpness", "worst"),
    }
    cells = {name: [entry.finding.of(*which) for entry in analysed] for name, which in heads.items()}
    shown = {name: results for name, results in cells.items() if any(results)}
    rows = [
        [entry.name, *(wording.with_interval(result) if (result := results[at]) else "—" for results in shown.values())]
        for at, entry in enumerate(analysed)
    ]
    sums = [{"run": entry.run, "name": entry.name, "cells": row[1:]} for entry, row in zip(analysed, rows, strict=True)]
    return lines_chart(
        id=f"curvature-{place}",
        file=file_name(analysed),
        title="Largest eigenvalues of the loss's Hessian",
        x={"label": "rank", "suffix": "", "word": "rank", "whole": True, "ticks": list(range(1, top + 1))},
        y={"label": "eigenvalue", "kind": "number"},
        series=series,
        sums={"head": [{"name": name, "flag": None} for name in shown], "rows": sums},
        caption=described(
            analysed[0].finding, model_names(analysed), loss_name(analysed[0]), "in all weights, by Lanczos",
            f"sharpness: rise of the loss within ρ = {settings['rho']:g} of the weights, as SAM measures it",
        ),
        numbers=[numbers(["Run", *map(str, range(1, top + 1))], _ranked(series))],
    )  # fmt: skip


def _ranked(series: Sequence[Line]) -> list[list[str]]:
    return [[str(entry["name"]), *(f"{point[1]:.4g}" for point in entry["points"])] for entry in series]
