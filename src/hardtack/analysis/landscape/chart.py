"""Charts of the loss around the trained weights: surfaces and lines."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_analyses import (
    AnalysedRun,
    charts_of_groups,
    comparable_findings,
    described,
    file_of,
    where,
)
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import line, lines_chart
from hardtack.report.kinds.surface import surface_chart
from hardtack.results import Finding, Run

NOT_COMPARED = ("n", "batch_size", "probes", "most", "tolerance")  # settings that may differ between runs of one chart


@charts.register(
    "landscape",
    section=Section(id="landscape", short="Landscape", title="Loss around the weights", order=140),
)
def landscape_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A chart for each set of images and kind of loss: surfaces, then lines."""
    return charts_of_groups(groups(runs, "landscape"), lambda place, analysed: [_landscape(place, analysed)])


def groups(runs: Sequence[Run], analysis: str) -> list[list[AnalysedRun]]:
    """The findings of each chart of this analysis: surfaces before lines, clean before attacked."""
    groups = comparable_findings(runs, analysis, _alike)
    return sorted(
        groups, key=lambda analysed: (_settings(analysed).get("dims") == 1, bool(_settings(analysed)["threat"]))
    )


def _settings(analysed: Sequence[AnalysedRun]) -> Mapping[str, Any]:
    return analysed[0].finding.settings


def _landscape(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    return (_line if _settings(analysed)["dims"] == 1 else _surface)(place, analysed)


def _alike(finding: Finding) -> Hashable:
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in NOT_COMPARED)
    return *where(finding), *settings


def loss_name(analysed: AnalysedRun) -> str:
    """`loss`, or `loss under pgd, ℓ∞ ≤ 8/255`."""
    settings = analysed.finding.settings
    if not settings.get("threat"):
        return "clean loss"
    once = "; perturbations computed once" if settings.get("craft") == "once" else ""
    return f"loss under {wording.attack_of(settings)}, {wording.threat_name(settings['threat'])}{once}"


def file_name(analysed: Sequence[AnalysedRun]) -> str:
    first = analysed[0].finding
    points = f"{first.settings['points']} points" if "points" in first.settings else ""
    return file_of(first, str(first.settings.get("threat") or "clean"), points)


def model_names(analysed: Sequence[AnalysedRun]) -> str:
    return wording.listed(list(dict.fromkeys(str(entry.finding.about.get("model")) for entry in analysed)))


def _numbers(analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """Loss and accuracy at the trained weights, and the rise of the loss around them."""
    rows = []
    for entry in analysed:
        here, rise = entry.finding.of("loss_at_weights"), entry.finding.of("mean_loss_rise")
        accuracy = entry.finding.arrays["accuracy"]
        rows.append(
            [
                entry.name,
                wording.with_interval(here) if here else "—",
                f"{100 * float(accuracy[len(accuracy) // 2]):.1f}%",
                wording.number(rise.value, rise.metric) if rise else "—",
            ]
        )
    return numbers(["Run", "Loss at the weights", "Accuracy there", "Mean rise of the loss on the grid"], rows)


def _caption(analysed: Sequence[AnalysedRun], *more: str) -> str:
    settings = _settings(analysed)
    norms = {entry.finding.facts.get("batch_norms", 0) > 0 for entry in analysed}
    statistics = f"batch-norm statistics {settings['statistics']}" if True in norms else ""
    grid = "×".join([str(settings["points"])] * settings["dims"])
    return described(
        analysed[0].finding, model_names(analysed), loss_name(analysed[0]), f"{grid} points",
        "random directions, each filter scaled to the norm of the trained one (1: the norm of the weights)", statistics,
        *more,
    )  # fmt: skip


def _surface(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    panels = []
    for entry in analysed:
        points = entry.finding.settings["points"]
        here = entry.finding.of("loss_at_weights")
        panels.append(
            {
                "run": entry.run,
                "name": entry.name,
                "axis": entry.finding.arrays["axis"],
                "values": np.asarray(entry.finding.arrays["loss"]).reshape(points, points),
                "said": f"{here.value:.3g} at the weights" if here else "",
            }
        )
    return surface_chart(
        id=f"landscape-{place}",
        file=file_name(analysed),
        title="Loss around the trained weights",
        caption=_caption(analysed, "same scale for all; +: the trained weights"),
        x="first direction",
        y="second direction",
        z="loss",
        panels=panels,
        numbers=[_numbers(analysed)],
    )


def _line(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    series = []
    for entry in analysed:
        values = zip(entry.finding.arrays["axis"].tolist(), entry.finding.arrays["loss"].tolist(), strict=True)
        points = [[round(x, 6), float(f"{y:.5g}")] for x, y in values if np.isfinite(y)]
        series.append(line(entry.run, entry.name, points))
    return lines_chart(
        id=f"landscape-line-{place}",
        file=file_name(analysed),
        title="Loss along a line through the trained weights",
        x={"label": "distance, in filter norms", "suffix": "", "word": "distance"},
        y={"label": "loss", "kind": "number"},
        series=series,
        caption=_caption(analysed),
        numbers=[_numbers(analysed)],
    )
