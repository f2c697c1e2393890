"""The cost of a training step against that of ordinary training, for each run: bars, and a table of all numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report.charts.comparable_analyses import (
    AnalysedRun,
    charts_of_groups,
    comparable_findings,
    file_of,
    models_of,
)
from hardtack.report.charts.section import Section
from hardtack.report.kinds.bars import Bars, bars_chart
from hardtack.report.kinds.chart import numbers
from hardtack.results import Finding, Result, Run

RATIOS = {"relative_step_cost": "multiply-adds", "relative_step_time": "seconds, fp32, not compiled"}


@charts.register(
    "cost", section=Section(id="cost", short="Cost", title="Training cost", layout="charts two", order=140)
)
def cost_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart for each image size."""
    return charts_of_groups(
        comparable_findings(runs, "cost", _alike), lambda place, analysed: [_chart(place, analysed)]
    )


def _alike(finding: Finding) -> Hashable:
    return finding.facts["image_size"], str(finding.settings.get("objective"))


def _chart(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    wanted = [metric for metric in RATIOS if any(entry.finding.of(metric) for entry in analysed)]
    series: list[Bars] = [
        {"run": entry.run, "name": entry.name, "values": [_value(entry.finding.of(metric)) for metric in wanted]}
        for entry in analysed
    ]
    keys = dict.fromkeys(_key(result) for entry in analysed for result in entry.finding.results)
    rows = [
        [
            " ".join(filter(None, (metric.replace("_", " "), column))),
            *(_cell(entry, metric, column) for entry in analysed),
        ]
        for metric, column in keys
    ]
    size = analysed[0].finding.facts["image_size"]
    return bars_chart(
        id=f"cost-{place}",
        file=file_of(analysed[0].finding, str(size)),
        title="Cost of a training step, ordinary training = 100%",
        rows=[RATIOS[metric] for metric in wanted],
        lower=True,
        x="of a step of ordinary training",
        series=series,
        caption=" · ".join(filter(None, (models_of(analysed), f"images of {size}×{size}"))),
        numbers=[numbers(["per image and step", *(entry.name for entry in analysed)], rows)],
    )


def _key(result: Result) -> tuple[str, str]:
    return result.metric, str(result.extra.get("column", ""))


def _value(result: Result | None) -> list[float | None] | None:
    return None if result is None else [round(result.value, 4), None, None]


def _cell(entry: AnalysedRun, metric: str, column: str) -> str:
    result = entry.finding.of(metric, column)
    return "—" if result is None else f"{result.value:.4g}"
