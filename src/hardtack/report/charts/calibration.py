"""Calibration: does a model that is 80 % sure have a right answer 80 % of the time?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import comparable_results, described, file_of
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.reliability import reliability_chart
from hardtack.results import Run

METRIC = "expected_calibration_error"


@charts.register(
    "calibration",
    section=Section(id="calibration", short="Calibration", title="Calibration", layout="charts", order=70),
)
def calibration_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A reliability diagram of every run: accuracy against confidence, and how many images are how sure."""
    charts = []
    groups = comparable_results(runs, lambda result: result.metric == METRIC and bool(result.extra.get("bins")))
    for place, compared_runs in enumerate(groups):
        results = [compared.results[-1] for compared in compared_runs]
        pairs = list(zip(compared_runs, results, strict=True))
        charts.append(
            reliability_chart(
                id=f"calibration-{place}",
                file=file_of(results[0]),
                title="Accuracy against confidence",
                x="confidence",
                panels=[
                    {
                        "run": compared.run,
                        "name": compared.name,
                        "error": wording.number(result.value, METRIC),
                        "n": result.n,
                        "bins": [[rounded(value) for value in bin] for bin in result.extra["bins"]],
                    }
                    for compared, result in pairs
                ],
                caption=described(
                    results[0], "hatched: the gap between confidence and accuracy; below the diagonal: overconfident"
                ),
                numbers=[
                    numbers(
                        ["Run", "Calibration error"],
                        [[compared.name, wording.with_interval(r)] for compared, r in pairs],
                    )
                ],
            )
        )
    return charts
