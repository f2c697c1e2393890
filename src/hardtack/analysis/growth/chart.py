"""Charts of the growth of perturbations from block to block, of its limits, and of the error of the Euler steps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report.charts.comparable_analyses import (
    AnalysedRun,
    charts_of_groups,
    comparable_findings,
    described,
    file_of,
    models_of,
    where,
)
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import Line, line, lines_chart
from hardtack.report.kinds.scatter import scatter_chart, scatter_view
from hardtack.results import Finding, Run

LIMIT = "first order"
_MOST = 300.0  # the largest exponent of ten of a float
FACTOR = "size relative to that before the first block"


@charts.register(
    "growth",
    section=Section(id="growth", short="Growth", title="How perturbations grow", layout="charts two", order=90),
)
def growth_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return charts_of_groups(comparable_findings(runs, "growth", _alike), _charts)


def _charts(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    return [_adversarial(place, analysed), _others(place, analysed), _steps(place, analysed), *_euler(place, analysed)]


def _said(analysed: Sequence[AnalysedRun], *more: str) -> str:
    return described(analysed[0].finding, models_of(analysed), *more)


def _alike(finding: Finding) -> Hashable:
    settings = finding.settings
    return (*where(finding), *(str(settings[name]) for name in ("threat", "attack", "type", "severity")))


def _adversarial(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    series = []
    for entry in analysed:
        series.append(_curve(entry, entry.name, entry.finding.arrays["log10_adversarial"], powers=True))
        limit = entry.finding.arrays[f"log10_{LIMIT}"]
        series.append(_curve(entry, f"{entry.name}, limit", limit, powers=True, dash=True))
    settings = analysed[0].finding.settings
    return _lines(
        f"growth-adversarial-{place}", analysed, "Growth of adversarial perturbations", "relative size",
        series,
        _said(analysed, FACTOR, f"attack in {settings['threat']}", "dashed: the limit given by σ_max of each block"),
        tables=[_summed(analysed)], log=True,
    )  # fmt: skip


def _others(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    series = []
    for entry in analysed:
        series.append(_curve(entry, f"{entry.name}, random", entry.finding.arrays["log10_random"], powers=True))
        corrupted = entry.finding.arrays["log10_corrupted"]
        series.append(_curve(entry, f"{entry.name}, corrupted", corrupted, powers=True, dash=True))
    settings = analysed[0].finding.settings
    corruption = f"dashed: {settings['type'].replace('_', ' ')} of severity {settings['severity']}"
    noise = "random: Gaussian noise with the norm of the adversarial perturbation before clipping to [0, 1]"
    return _lines(
        f"growth-random-{place}", analysed, "Growth of random perturbations and of a corruption",
        "relative size", series,
        _said(analysed, FACTOR, noise, corruption), log=_long(series),
    )  # fmt: skip


def _steps(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """The growth of the adversarial perturbation in each step, and the largest possible growth."""
    series, rows = [], []
    for entry in analysed:
        sizes = np.maximum(entry.finding.arrays["size_adversarial"], 1e-12)
        factors, most = sizes[:, 1:] / sizes[:, :-1], entry.finding.arrays["sigma_block"]
        series.append(_curve(entry, entry.name, factors, first=1))
        series.append(_curve(entry, f"{entry.name}, most", most, first=1, dash=True))
        for number, name in enumerate(entry.finding.facts["steps"]):
            rows.append([entry.name, name, f"{factors[:, number].mean():.3g}", f"{most[:, number].mean():.3g}"])
    return _lines(
        f"growth-steps-{place}", analysed, "Which layers amplify", "factor", series,
        _said(analysed, f"adversarial perturbations in {analysed[0].finding.settings['threat']}", "dashed: σ_max"),
        tables=[numbers(["Run", "Layer", "Factor", "σ_max"], rows)], first=1, log=_long(series),
    )  # fmt: skip


def _euler(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    measured = [
        entry for entry in analysed if "euler_error" in entry.finding.arrays and entry.finding.of("euler_error")
    ]
    if not measured:
        return []
    series, rows = [], []
    for entry in measured:
        series.append(_curve(entry, entry.name, entry.finding.arrays["euler_error"], first=1))
        error, drift = entry.finding.of("euler_error"), entry.finding.of("euler_drift")
        values = [f"{result.value:.3g}" if result else "—" for result in (error, drift)]
        rows.append([entry.name, str(entry.finding.facts["depth"]), *values])
    steps = measured[0].finding.settings["substeps"]
    caption = _said(measured, f"‖{steps} Euler steps − one‖ / ‖F(x)‖ of each block")
    tables = [numbers(["Run", "Blocks", "Mean error of a step", "Drift at the end"], rows)]
    charts = [
        _lines(
            f"growth-euler-{place}", measured, "Error of a block as one Euler step", "relative error", series, caption,
            tables=tables, first=1,
        )
    ]  # fmt: skip
    return charts + _against_depth(place, measured, caption)


def _against_depth(place: int, analysed: Sequence[AnalysedRun], caption: str) -> list[dict[str, Any]]:
    """A chart against depth, if there are at least three networks with at least two depths."""
    depths = [entry.finding.facts["depth"] for entry in analysed]
    if len(analysed) < 3 or len(set(depths)) < 2:
        return []
    views = []
    for metric, name in (("euler_error", "mean error of a step"), ("euler_drift", "drift at the end")):
        results = [entry.finding.of(metric) for entry in analysed]
        points = [
            {
                "run": entry.run,
                "name": entry.name,
                "x": depth,
                "y": result.value,
                "low": result.low,
                "high": result.high,
            }
            for entry, depth, result in zip(analysed, depths, results, strict=True)
            if result
        ]
        views.append(scatter_view(name, points, x="blocks", y=name, file=metric))
    return [
        scatter_chart(
            id=f"growth-depth-{place}", file=file_of(analysed[0].finding), title="Euler error against depth",
            caption=caption, views=views, label="Show",
        )
    ]  # fmt: skip


# ---------------------------------------------------------------- curves


def _curve(
    entry: AnalysedRun, name: str, values: np.ndarray, *, powers: bool = False, dash: bool = False, first: int = 0
) -> Line:
    """Means over images with 95 % intervals, along the steps; `powers`: values are exponents of ten."""
    values = np.asarray(values, dtype=float)
    mean, half = values.mean(axis=0), 1.959964 * values.std(axis=0) / np.sqrt(max(1, len(values)))
    points = []
    for step, (middle, around) in enumerate(zip(mean, half, strict=True)):
        if np.isfinite(middle):
            three = [middle, middle - around, middle + around]
            three = [10 ** min(value, _MOST) for value in three] if powers else [three[0], max(0.0, three[1]), three[2]]
            points.append([step + first, *(float(f"{value:.5g}") for value in three)])
    return line(entry.run, name, points, dash=dash, band=not dash, marks=not dash)


def _long(series: Sequence[Line]) -> bool:
    values = [point[1] for entry in series for point in entry["points"]]
    return min(values) > 0 and max(values) > 30 * min(values)


def _lines(
    id: str,
    analysed: Sequence[AnalysedRun],
    title: str,
    y: str,
    series: list[Line],
    caption: str,
    *,
    tables: Sequence[dict[str, Any]] = (),
    first: int = 0,
    log: bool = False,
) -> dict[str, Any]:
    last = max(int(point[0]) for entry in series for point in entry["points"])
    word = "after step" if first == 0 else "step"
    return lines_chart(
        id=id,
        file=file_of(analysed[0].finding),
        title=title,
        x={"label": _axis(analysed), "suffix": "", "word": word, "whole": True, "ticks": list(range(first, last + 1))},
        y={"label": y, "kind": "number", "log": log},
        series=series,
        caption=caption,
        numbers=list(tables),
    )


def _axis(analysed: Sequence[AnalysedRun]) -> str:
    plain = all(len(entry.finding.facts["steps"]) == entry.finding.facts["depth"] for entry in analysed)
    return "block" if plain else "step: a block, or the layers between two stages"


def _summed(analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    columns = ("adversarial", "random", "corrupted", "first order", "one plus", "exponential")
    rows = []
    for entry in analysed:
        results = [entry.finding.of("log10_growth", column) for column in columns]
        cells = ["—" if result is None else _times(result.value) for result in results]
        rows.append([entry.name, *cells, entry.finding.facts["most_amplifying"]])
    head = ["Run", "Adversarial", "Random", "Corrupted", "Π σ(I+J)", "Π (1+σ(J))", "exp Σ σ(J)", "Amplifies most"]
    return numbers(head, rows, "Growth from the first block's input to the last one's output (geometric mean)")


def _times(power: float) -> str:
    """Powers of ten as text, because the paper's exponential limit overflows a float."""
    return f"{10**power:.3g} ×" if power < _MOST else f"10^{power:.0f} ×"
