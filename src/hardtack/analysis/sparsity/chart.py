"""Charts of weights: their distribution, the share of small weights, and sparsity against robust accuracy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.against_accuracy import measured_by, with_accuracy
from hardtack.report.charts.comparable_analyses import AnalysedRun, charts_of_groups, comparable_findings
from hardtack.report.charts.section import Section
from hardtack.report.kinds.bars import bars_chart
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.histogram import histogram_chart, histogram_view
from hardtack.report.kinds.lines import line, lines_chart
from hardtack.report.kinds.scatter import scatter_chart, scatter_view
from hardtack.results import Finding, Result, Run, lower_is_better

COMPONENTS = ("all", "convolution", "qkv", "feed-forward", "other")
SPOKEN = {"all": "all weights", "qkv": "query, key and value"}


@charts.register(
    "sparsity",
    section=Section(id="weights", short="Weights", title="Weights", layout="charts two", order=130),
)
def sparsity_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:

    def charts(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
        drawn = [_densities(place, analysed), _shares(place, analysed), _norms(place, analysed)]
        return [*drawn, *_against_accuracy(place, analysed, runs)]

    return charts_of_groups(comparable_findings(runs, "sparsity", _alike), charts)


def _alike(finding: Finding) -> Hashable:
    return float(finding.settings["threshold"])


def _about(analysed: Sequence[AnalysedRun], *more: str) -> str:
    models = dict.fromkeys(
        f"{entry.finding.about.get('model')}, {wording.count(entry.finding.facts['weights'])} weights"
        for entry in analysed
    )
    return " · ".join(part for part in (wording.listed(list(models)), *more) if part)


def _named(component: str) -> str:
    return SPOKEN.get(component, component)


def _sparsity(analysed: AnalysedRun, component: str, kind: str) -> Result | None:
    return analysed.finding.of("sparsity", kind if component == "all" else f"{component} {kind}")


def _present(analysed: Sequence[AnalysedRun]) -> list[str]:
    return [name for name in COMPONENTS if any(_sparsity(entry, name, "global") for entry in analysed)]


def _densities(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    views = []
    for component in _present(analysed):
        series = [
            {"run": entry.run, "name": entry.name, "edges": entry.finding.arrays["edges"], "density": density}
            for entry in analysed
            if (density := entry.finding.arrays.get(f"density {component}")) is not None
        ]
        views.append(histogram_view(_named(component), series, x="weight", file=component))
    return histogram_chart(
        id=f"sparsity-density-{place}",
        file="weights",
        title="Distribution of the weights",
        caption=_about(analysed, "weights of linear, convolutional and attention layers; no biases, norms or tokens"),
        views=views,
        label="Of",
        numbers=[_share_table(analysed, "global")],
    )


def _share_table(analysed: Sequence[AnalysedRun], kind: str) -> dict[str, Any]:
    rows = []
    for component in _present(analysed):
        results = [_sparsity(entry, component, kind) for entry in analysed]
        rows.append(
            [_named(component), *("—" if result is None else f"{100 * result.value:.2f}%" for result in results)]
        )
    of = "the largest of the network" if kind == "global" else "the largest of its matrix or kernel"
    threshold = analysed[0].finding.settings["threshold"]
    return numbers(
        ["Below", *(entry.name for entry in analysed)], rows, f"Share of weights below {threshold:g} times {of}"
    )


def _shares(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    present = _present(analysed)
    threshold = analysed[0].finding.settings["threshold"]
    return bars_chart(
        id=f"sparsity-{place}",
        file=f"threshold {threshold:g}",
        title="Weights close to zero",
        rows=[_named(component) for component in present],
        total=False,
        lower=lower_is_better("sparsity"),
        x="share of weights",
        series=[
            {
                "run": entry.run,
                "name": entry.name,
                "values": [_bar(_sparsity(entry, name, "global")) for name in present],
            }
            for entry in analysed
        ],
        differences=[],
        caption=_about(analysed, f"weights smaller than {threshold:g} times the network's largest"),
        numbers=[_share_table(analysed, "global"), _share_table(analysed, "own")],
    )


def _bar(result: Result | None) -> list[float | None] | None:
    return None if result is None else [round(result.value, 6), None, None]


def _norms(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """The largest singular value of every matrix, from the first layer to the last."""
    series, rows = [], []
    for entry in analysed:
        values = np.asarray(entry.finding.arrays["spectral"], dtype=float).tolist()
        points = [[at + 1, float(f"{value:.5g}")] for at, value in enumerate(values)]
        series.append(line(entry.run, entry.name, points))
        sums = [entry.finding.of(metric) for metric in ("weight_l1", "weight_l2", "largest_spectral_norm")]
        rows.append([entry.name, *(f"{result.value:.4g}" if result else "—" for result in sums)])
    layers = list(range(1, 1 + max(len(entry.finding.arrays["spectral"]) for entry in analysed)))
    return lines_chart(
        id=f"sparsity-norms-{place}",
        file="norms",
        title="Spectral norms of the layers",
        x={"label": "matrix or kernel, in order", "suffix": "", "word": "layer", "whole": True, "ticks": layers},
        y={"label": "spectral norm", "kind": "number"},
        series=series,
        caption=_about(
            analysed, "largest singular value of each; a kernel is taken as a matrix with a row for each output"
        ),
        numbers=[numbers(["Run", "l1 norm of all weights", "l2 norm", "Largest spectral norm"], rows)],
    )


# ---------------------------------------------------------------- against robust accuracy


def _against_accuracy(place: int, analysed: Sequence[AnalysedRun], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A chart for the measure of robustness that most of these runs share, if three or more do."""
    if not (pairs := with_accuracy(analysed, runs)):
        return []
    result = pairs[0][1]
    called = wording.metric_name(result.metric)
    views = []
    for component in _present(analysed):
        points = [
            {"run": entry.run, "name": entry.name, "x": share.value, "y": r.value, "low": r.low, "high": r.high}
            for entry, r in pairs
            if (share := _sparsity(entry, component, "global"))
        ]
        if len(points) >= 3:
            name = _named(component)
            views.append(
                scatter_view(
                    name, points, x=f"sparsity of {name}", y=called, x_kind="percent", y_kind="percent", file=component
                )
            )
    return [
        scatter_chart(
            id=f"sparsity-accuracy-{place}",
            file=f"{result.metric} {result.suite}",
            title=f"{called} against sparsity",
            caption=measured_by(result),
            views=views,
            label="Sparsity of",
        )
    ]
