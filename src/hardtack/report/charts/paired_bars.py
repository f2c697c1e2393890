"""Bars with intervals, one group per row, and their differences to a baseline that the reader chooses.

Where both runs have verdicts on the same images the difference is paired: its interval is that of the mean of the
images' differences. Elsewhere the two intervals are added as if they were independent, which is wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardtack.base.errors import UserError
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun
from hardtack.report.kinds.bars import bars_chart
from hardtack.report.kinds.chart import Chart, numbers, rounded
from hardtack.results import Result, lower_is_better, per_image, stored_verdicts

Z = 1.959964  # of a 95 % interval
MEAN = "mean of all"


@dataclass
class Bar:
    """A mean of results on the same images: its value and half of its interval; `vector` (n,) has one number per image.

    Without verdicts there is no vector, and `index`, which images they are, is empty too.
    """

    value: float
    half: float
    index: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    vector: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def of(cls, value: float, index: np.ndarray, vector: np.ndarray) -> Bar:
        return cls(value, _half(vector), index, vector)


def paired_bars_chart(
    compared_runs: Sequence[ComparedRun],
    rows: Sequence[str],
    results: Sequence[Sequence[Sequence[Result]]],
    *,
    last: tuple[str, Sequence[float | None]] | None = None,
    x: str | None = None,
    baseline: bool = True,
    **about: Any,
) -> Chart:
    """`results[run][row]` are what a bar is the mean of.

    Of several rows a last one is the mean, unless `last` gives it a name and a value for each run. `x` is the name
    of the axis (by default the metric's), `baseline`: the first run is the baseline until the reader chooses another.
    """
    metric = next(result.metric for bars in results for bar in bars for result in bar)
    run_bars = [_bars(compared, cells) for compared, cells in zip(compared_runs, results, strict=True)]
    if last is not None:
        name, values = last
        run_bars = [[*bars, None if v is None else Bar(v, math.nan)] for bars, v in zip(run_bars, values, strict=True)]
    elif len(rows) > 1:
        name = MEAN
        run_bars = [[*bars, _mean([bar for bar in bars if bar]) if all(bars) else None] for bars in run_bars]
    total = last is not None or len(rows) > 1
    shown = [*rows, *([name] if total else [])]
    return bars_chart(
        rows=shown,
        total=total,
        lower=lower_is_better(metric),
        x=x or wording.metric_name(metric),
        series=[
            {"run": compared.run, "name": compared.name, "values": [_within(_triple(bar)) for bar in bars]}
            for compared, bars in zip(compared_runs, run_bars, strict=True)
        ],
        differences=[[_differences(ours, base) for ours in run_bars] for base in run_bars] if len(run_bars) > 1 else [],
        choose={
            "label": "Compare with",
            "options": ["nothing", *(compared.name for compared in compared_runs)],
            "chosen": 1 if baseline else 0,
        }
        if len(compared_runs) > 1
        else None,
        numbers=[
            numbers(
                ["", *(compared.name for compared in compared_runs)],
                [[row, *(_words(bars[place]) for bars in run_bars)] for place, row in enumerate(shown)],
            )
        ],
        **about,
    )


def _bars(compared: ComparedRun, cells: Sequence[Sequence[Result]]) -> list[Bar | None]:
    files = {result.verdicts: result for results in cells for result in results if result.verdicts}
    columns = {name: _verdicts(compared, result) for name, result in files.items()}
    return [_bar(results, columns) if results else None for results in cells]


def _verdicts(compared: ComparedRun, result: Result) -> dict[str, Any]:
    try:
        return stored_verdicts(compared.folder, result)
    except (UserError, OSError):
        return {}


def _bar(results: Sequence[Result], columns: dict[str, dict[str, Any]]) -> Bar:
    value = float(np.mean([result.value for result in results]))
    verdict_columns = [columns.get(result.verdicts or "", {}) for result in results]
    vectors = [
        per_image(result, verdicts) if verdicts else None
        for result, verdicts in zip(results, verdict_columns, strict=True)
    ]
    whole = [vector for vector in vectors if vector is not None and len(vector) == results[0].n]
    if len(whole) == len(results) and "index" in verdict_columns[0]:
        return Bar.of(value, verdict_columns[0]["index"], np.mean(whole, axis=0))
    # Severities err on the same images: the mean's interval is at most as wide as theirs are on average.
    halves = [(r.high - r.low) / 2 for r in results if r.low is not None and r.high is not None]
    return Bar(value, float(np.mean(halves)) if halves else math.nan)


def _mean(bars: list[Bar]) -> Bar:
    value = float(np.mean([bar.value for bar in bars]))
    if all(len(bar.index) and np.array_equal(bar.index, bars[0].index) for bar in bars):
        return Bar.of(value, bars[0].index, np.mean([bar.vector for bar in bars], axis=0))
    return Bar(value, float(np.mean([bar.half for bar in bars])))


def _half(vector: np.ndarray) -> float:
    return float(Z * vector.std() / math.sqrt(len(vector)))


def _differences(ours: Sequence[Bar | None], base: Sequence[Bar | None]) -> list[list[float | None] | None]:
    return [_triple(_difference(a, b)) if a and b else None for a, b in zip(ours, base, strict=True)]


def _difference(ours: Bar, base: Bar) -> Bar:
    value = ours.value - base.value
    if len(ours.index) and np.array_equal(ours.index, base.index):
        return Bar.of(value, ours.index, ours.vector - base.vector)
    return Bar(value, math.hypot(ours.half, base.half))


def _triple(bar: Bar | None) -> list[float | None] | None:
    if bar is None:
        return None
    if math.isnan(bar.half):
        return [rounded(bar.value), None, None]
    return [rounded(bar.value), rounded(bar.value - bar.half), rounded(bar.value + bar.half)]


def _within(interval: list[float | None] | None) -> list[float | None] | None:
    """A share's interval ends where shares do."""
    return interval and [None if bound is None else min(1.0, max(0.0, bound)) for bound in interval]


def _words(bar: Bar | None) -> str:
    if bar is None:
        return "—"
    return f"{100 * bar.value:.1f}%" + ("" if math.isnan(bar.half) else f" ± {100 * bar.half:.1f}")
