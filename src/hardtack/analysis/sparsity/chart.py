"""Weights: how they are distributed, how many hardly count, and whether sparse networks are the robust ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.against_accuracy import said_of, with_accuracy
from hardtack.report.charts.comparable_analyses import Found, charts_of, findings_beside
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

    def charts(place: int, found: Sequence[Found]) -> list[dict[str, Any]]:
        drawn = [_densities(place, found), _shares(place, found), _norms(place, found)]
        return [*drawn, *_against_accuracy(place, found, runs)]

    return charts_of(findings_beside(runs, "sparsity", _alike), charts)


def _alike(finding: Finding) -> Hashable:
    return float(finding.settings["threshold"])


def _about(found: Sequence[Found], *more: str) -> str:
    models = dict.fromkeys(
        f"{one.finding.about.get('model')}, {wording.count(one.finding.facts['weights'])} weights" for one in found
    )
    return " · ".join(part for part in (wording.listed(list(models)), *more) if part)


def _named(component: str) -> str:
    return SPOKEN.get(component, component)


def _sparsity(found: Found, component: str, kind: str) -> Result | None:
    return found.finding.of("sparsity", kind if component == "all" else f"{component} {kind}")


def _present(found: Sequence[Found]) -> list[str]:
    return [name for name in COMPONENTS if any(_sparsity(one, name, "global") for one in found)]


def _densities(place: int, found: Sequence[Found]) -> dict[str, Any]:
    views = []
    for component in _present(found):
        series = [
            {"run": one.run, "name": one.name, "edges": one.finding.arrays["edges"], "density": density}
            for one in found
            if (density := one.finding.arrays.get(f"density {component}")) is not None
        ]
        views.append(histogram_view(_named(component), series, x="weight", file=component))
    return histogram_chart(
        id=f"sparsity-density-{place}",
        file="weights",
        title="Distribution of the weights",
        caption=_about(found, "matrices and kernels, without biases, norms and tokens"),
        views=views,
        label="Of",
        numbers=[_share_table(found, "global")],
    )


def _share_table(found: Sequence[Found], kind: str) -> dict[str, Any]:
    rows = []
    for component in _present(found):
        results = [_sparsity(one, component, kind) for one in found]
        rows.append(
            [_named(component), *("—" if result is None else f"{100 * result.value:.2f}%" for result in results)]
        )
    of = "the largest of the network" if kind == "global" else "the largest of its matrix or kernel"
    threshold = found[0].finding.settings["threshold"]
    return numbers(["Below", *(one.name for one in found)], rows, f"Share of weights below {threshold:g} times {of}")


def _shares(place: int, found: Sequence[Found]) -> dict[str, Any]:
    present = _present(found)
    threshold = found[0].finding.settings["threshold"]
    return bars_chart(
        id=f"sparsity-{place}",
        file=f"threshold {threshold:g}",
        title="Weights that hardly count",
        rows=[_named(component) for component in present],
        total=False,
        lower=lower_is_better("sparsity"),
        x="share of weights",
        series=[
            {"run": one.run, "name": one.name, "values": [_bar(_sparsity(one, name, "global")) for name in present]}
            for one in found
        ],
        differences=[],
        caption=_about(found, f"weights smaller than {threshold:g} times the network's largest"),
        numbers=[_share_table(found, "global"), _share_table(found, "own")],
    )


def _bar(result: Result | None) -> list[float | None] | None:
    return None if result is None else [round(result.value, 6), None, None]


def _norms(place: int, found: Sequence[Found]) -> dict[str, Any]:
    """The largest singular value of every matrix, from the first layer to the last."""
    series, rows = [], []
    for one in found:
        values = np.asarray(one.finding.arrays["spectral"], dtype=float).tolist()
        points = [[at + 1, float(f"{value:.5g}")] for at, value in enumerate(values)]
        series.append(line(one.run, one.name, points))
        sums = [one.finding.of(metric) for metric in ("weight_l1", "weight_l2", "largest_spectral_norm")]
        rows.append([one.name, *(f"{result.value:.4g}" if result else "—" for result in sums)])
    layers = list(range(1, 1 + max(len(one.finding.arrays["spectral"]) for one in found)))
    return lines_chart(
        id=f"sparsity-norms-{place}",
        file="norms",
        title="Spectral norms of the layers",
        x={"label": "matrix or kernel, in order", "suffix": "", "word": "layer", "whole": True, "ticks": layers},
        y={"label": "spectral norm", "kind": "number"},
        series=series,
        caption=_about(found, "largest singular value of each, a kernel as a matrix with a row for each output"),
        numbers=[numbers(["Run", "l1 norm of all weights", "l2 norm", "Largest spectral norm"], rows)],
    )


# ---------------------------------------------------------------- against robust accuracy


def _against_accuracy(place: int, found: Sequence[Found], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A chart for the measure of robustness that most of these runs share, if three or more do."""
    if not (pairs := with_accuracy(found, runs)):
        return []
    result = pairs[0][1]
    called = wording.metric_name(result.metric)
    views = []
    for component in _present(found):
        points = [
            {"run": one.run, "name": one.name, "x": share.value, "y": r.value, "low": r.low, "high": r.high}
            for one, r in pairs
            if (share := _sparsity(one, component, "global"))
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
            caption=said_of(result),
            views=views,
            label="Sparsity of",
        )
    ]
