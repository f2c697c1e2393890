"""Charts of Jacobian spectra: σ_max by layer (figure 3 of paper 4), and σ_max against robust accuracy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from hardtack.analysis.jacobian.columns import column_of
from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.against_accuracy import measured_by, with_accuracy
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
from hardtack.report.kinds.scatter import scatter_chart, scatter_view
from hardtack.report.kinds.violin import violin_chart, violin_view
from hardtack.results import Finding, Run

SPOKEN = {
    "block": "blocks, with their residual connection",
    "residual": "blocks, without their residual connection",
    "attention": "attention branches",
    "mlp": "MLP branches",
    "stretch": "a stretch of blocks",
    "features": "pixels to the last block",
    "network": "pixels to logits",
}


@charts.register(
    "jacobian",
    section=Section(id="jacobian", short="Jacobians", title="Jacobian spectra", order=80),
)
def jacobian_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups = comparable_findings(runs, "jacobian", _alike)
    return charts_of_groups(
        groups, lambda place, analysed: [_violins(place, analysed), *_against(place, analysed, runs)]
    )


def _alike(finding: Finding) -> Hashable:
    """Findings about different pieces get different charts: a newer one does not replace an older one."""
    settings = finding.settings
    at = (str(settings.get("threat")), str(settings.get("attack")))
    return *where(finding), *sorted(settings["of"]), str(settings["stretch"]), *at


def _kinds(analysed: Sequence[AnalysedRun]) -> list[str]:
    return list(dict.fromkeys(kind for entry in analysed for kind in entry.finding.facts["layers"]))


def spoken(kind: str) -> str:
    return SPOKEN.get(kind, f"{kind} branches")


def _having(analysed: Sequence[AnalysedRun], kind: str) -> list[AnalysedRun]:
    return [entry for entry in analysed if kind in entry.finding.facts["layers"]]


def _sigma(entry: AnalysedRun, kind: str) -> np.ndarray:
    """σ_max of every image and layer, N×layers."""
    values: np.ndarray = entry.finding.arrays[f"sigma_{kind}"][:, :, 0]
    return values


def shared_rows(names: Sequence[Sequence[str]]) -> list[str]:
    """The longest of several lists of layers, if the others are its beginning; else the numbers of the layers."""
    longest = max(names, key=len)
    if all(list(entry) == list(longest[: len(entry)]) for entry in names):
        return list(longest)
    return [f"layer {number + 1}" for number in range(len(longest))]


def _violins(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    views, tables = [], [_summed(analysed)]
    for kind in _kinds(analysed):
        having = _having(analysed, kind)
        rows = shared_rows([entry.finding.facts["layers"][kind] for entry in having])
        series = []
        for entry in having:
            sigma = _sigma(entry, kind)
            values = [sigma[:, number] if number < sigma.shape[1] else None for number in range(len(rows))]
            series.append({"run": entry.run, "name": entry.name, "values": values})
        views.append(violin_view(spoken(kind), rows, series, x="σ_max of the Jacobian", file=kind))
        if len(rows) > 1:
            tables.append(_by_layer(rows, having, kind))
    return violin_chart(
        id=f"jacobian-{place}",
        file=file_of(analysed[0].finding),
        title="Largest singular value of each layer's Jacobian",
        caption=described(
            analysed[0].finding, models_of(analysed), _how(analysed), "box: quartiles over the images, dot: mean"
        ),
        views=views,
        numbers=tables,
    )


def _by_layer(rows: Sequence[str], analysed: Sequence[AnalysedRun], kind: str) -> dict[str, Any]:
    means = [_sigma(entry, kind).mean(axis=0) for entry in analysed]
    lines = [
        [row, *(f"{mean[number]:.3g}" if number < len(mean) else "—" for mean in means)]
        for number, row in enumerate(rows)
    ]
    return numbers(["Layer", *(entry.name for entry in analysed)], lines, f"Mean σ_max: {spoken(kind)}")


def _how(analysed: Sequence[AnalysedRun]) -> str:
    methods = {"lanczos": "Golub–Kahan", "power": "block power iteration", "dense": "exact"}
    sentences = dict.fromkeys(
        methods[settings["method"]] + ("" if settings["method"] == "dense" else f" to {settings['tolerance']:g}")
        for settings in (entry.finding.settings for entry in analysed)
    )
    return f"largest singular values{_at(analysed[0].finding)}, {wording.listed(list(sentences))}"


def _at(finding: Finding) -> str:
    """Where spectra were measured that are not those at the images themselves."""
    if not (threat := finding.settings.get("threat")):
        return ""
    attack = wording.attack_of(finding.settings, otherwise="an attack")
    return f" at images attacked by {attack} within {wording.threat_name(threat)}"


def _summed(analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """Table 1 of paper 4: mean and standard deviation over all layers and images, and the number of products."""
    rows = []
    for entry in analysed:
        facts = entry.finding.facts
        for kind in facts["layers"]:
            spread, products = facts["spread"][kind], facts["products"][kind]
            column = column_of(kind, entry.finding.settings.get("threat"))
            bound, loose = entry.finding.of("sigma_bound", column), entry.finding.of("looseness", column)
            rows.append(
                [
                    entry.name, spoken(kind), f"{spread['mean']:.4g} ({spread['std']:.3g})", f"{products['mean']:.1f}",
                    f"{100 * facts['converged'][kind]:.1f}%", f"{bound.value:.4g}" if bound else "—",
                    f"{loose.value:.3g} ×" if loose else "—",
                ]
            )  # fmt: skip
    head = ["Run", "Of", "Mean σ_max (std)", "Products", "Converged", "√(‖J‖₁‖J‖∞)", "Bound over σ_max"]
    return numbers(head, rows, "Over layers and images")


def _against(place: int, analysed: Sequence[AnalysedRun], runs: Sequence[Run]) -> list[dict[str, Any]]:
    pairs = with_accuracy(analysed, runs)
    views = []
    for kind in _kinds(analysed):
        points = [
            {
                "run": entry.run, "name": entry.name, "x": entry.finding.facts["spread"][kind]["mean"],
                "y": result.value, "low": result.low, "high": result.high,
            }
            for entry, result in pairs
            if kind in entry.finding.facts["layers"]
        ]  # fmt: skip
        if len(points) >= 3:
            name = wording.metric_name(pairs[0][1].metric)
            views.append(
                scatter_view(
                    spoken(kind), points, x="mean σ_max over layers and images", y=name, y_kind="percent", file=kind
                )
            )
    if not views:
        return []
    result = pairs[0][1]
    return [
        scatter_chart(
            id=f"jacobian-accuracy-{place}",
            file=f"{result.metric} {result.suite}",
            title=f"{wording.metric_name(result.metric)} against σ_max",
            caption=f"{measured_by(result)} · σ_max{_at(analysed[0].finding)}: {described(analysed[0].finding)}",
            views=views,
            label="σ_max of",
        )
    ]
