"""Certified accuracy against the l2 radius, a lower bound, beside robust accuracy under attack, an upper bound.

The two are about two models, the smoothed one and the model itself, and every text here says so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardtack.base.errors import UserError
from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, comparable_results, described, file_of, triple, where
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.lines import Line, line, lines_chart
from hardtack.results import Result, Run, parse_threat, source_of, stored_verdicts, wilson
from hardtack.results.metrics import certified_radii
from hardtack.results.record import REPORTED

CERTIFIED, ROBUST = "certified_accuracy", "robust_accuracy"
_POINTS = 120  # of a curve: steps of a picture's width


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """One smoothed model: its results by radius, and the lowest robust accuracy of the model itself by radius."""

    subject: ComparedRun
    certified: dict[float, Result]
    attacked: dict[float, Result]

    @property
    def first(self) -> Result:
        return self.certified[min(self.certified)]

    @property
    def sigma(self) -> float:
        return float(self.first.attack_settings["sigma"])

    def beside(self, metric: str) -> Result | None:
        """What else the same evaluation measured."""
        return self.subject.beside(metric, self.first.evaluation)

    @functools.cached_property
    def radii(self) -> np.ndarray | None:
        """The certified radius of every image; None where the verdicts are missing."""
        try:
            return certified_radii(stored_verdicts(self.subject.folder, self.first))
        except (UserError, KeyError):
            return None

    def share(self, radius: float) -> float | None:
        """Certified accuracy at any radius; None where it was neither measured nor follows from verdicts."""
        if radius in self.certified:
            return self.certified[radius].value
        return None if self.radii is None else float((self.radii > radius).mean())

    def curve(self) -> list[list[float | None]]:
        """[radius, share, low, high]: from the radius of every image where verdicts exist, else from the results."""
        if self.radii is None:
            return [[radius, *triple(self.certified[radius])] for radius in sorted(self.certified)]
        n, end = len(self.radii), float(self.radii.max()) or max(self.certified) or 1.0
        counts = [(radius, int((self.radii > radius).sum())) for radius in np.linspace(0, end, _POINTS)]
        return [[rounded(radius), rounded(count / n), *map(rounded, wilson(count, n))] for radius, count in counts]


def bounds_of(runs: Sequence[Run]) -> list[list[Bounds]]:
    """For each set of images and each noise, every model that was certified; `attack` has the settings in words."""
    groups = comparable_results(
        runs,
        lambda result: result.metric == CERTIFIED and bool(result.threat),
        lambda result: (*where(result), result.attack),
    )
    return [[_bounds(subject) for subject in subjects] for subjects in groups]


def _bounds(subject: ComparedRun) -> Bounds:
    """Of several evaluations the newest."""
    newest = max(subject.results, key=lambda result: result.created).evaluation
    certified = {_radius(result): result for result in subject.results if result.evaluation == newest}
    return Bounds(subject=subject, certified=certified, attacked=_attacked(subject, certified))


def _attacked(subject: ComparedRun, certified: dict[float, Result]) -> dict[float, Result]:
    """The lowest robust accuracy at each l2 radius that was measured on the same weights and images."""
    first, lowest = next(iter(certified.values())), dict[float, Result]()
    for result in subject.all_results:
        same = (result.data, result.n, result.data_description) == (first.data, first.n, first.data_description)
        weights = (result.checkpoint, result.weights_sha256) == (first.checkpoint, first.weights_sha256)
        if result.metric != ROBUST or not (same and weights) or source_of(result) == REPORTED:
            continue
        if not str(result.threat).startswith("l2:") or result.extra.get("limits"):
            continue
        radius = _radius(result)
        if radius not in lowest or result.value < lowest[radius].value:
            lowest[radius] = result
    return lowest


def _radius(result: Result) -> float:
    return parse_threat(str(result.threat))[1]


# ---------------------------------------------------------------- the chart


@charts.register(
    "certified",
    section=Section(id="certified", short="Certified", title="Certified accuracy", order=11),
)
def certified_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart for each set of images and noise: a solid curve for each smoothed model, a dashed one for the model."""
    return [_chart(number, group) for number, group in enumerate(bounds_of(runs))]


def _chart(number: int, group: list[Bounds]) -> dict[str, Any]:
    series: list[Line] = []
    for bounds in group:
        series.append(line(bounds.subject.run, f"{bounds.subject.name}: certified", bounds.curve(), band=True))
    for bounds in (bounds for bounds in group if bounds.attacked):
        points = [[rounded(radius), *triple(bounds.attacked[radius])] for radius in sorted(bounds.attacked)]
        name = f"{bounds.subject.name}: attacked, without noise"
        series.append(line(bounds.subject.run, name, points, dash=True, marks=True))
    first = group[0].first
    return lines_chart(
        id=f"certified-{number}",
        file=f"sigma {group[0].sigma:g} {file_of(first)}",
        title=f"Certified accuracy against ℓ₂ radius, noise σ = {group[0].sigma:g}",
        x={"label": "ℓ₂ radius", "suffix": "", "word": "radius"},
        y={"label": "accuracy", "kind": "percent"},
        series=series,
        sums=_sums(group),
        caption=_caption(group),
        numbers=[numbers_of(group)],
    )


def _caption(group: list[Bounds]) -> str:
    first = group[0].first
    settings = first.attack_settings
    parts = [f"σ = {settings['sigma']:g}, {settings['samples']:,} copies an image, α = {settings['alpha']:g}"]
    parts.append("certified: a lower bound for the model smoothed by noise")
    if any(bounds.attacked for bounds in group):
        parts.append("dashed: an upper bound for the model itself, which is another one")
    return described(first, *parts, f"bands: {first.interval}")


def _sums(group: list[Bounds]) -> dict[str, Any]:
    columns = ("smoothed_accuracy", "average_certified_radius")
    rows = []
    for bounds in group:
        cells = [wording.with_interval(result) if (result := bounds.beside(name)) else "—" for name in columns]
        abstained = bounds.first.extra.get("abstained")
        cells.append("—" if abstained is None else f"{100 * abstained:.1f}%")
        rows.append({"run": bounds.subject.run, "name": bounds.subject.name, "cells": cells})
    head = [{"name": name, "flag": None} for name in (*map(wording.metric_name, columns), "Abstained")]
    return {"head": head, "rows": rows}


def numbers_of(group: Sequence[Bounds]) -> dict[str, Any]:
    """A row of certified accuracies for each smoothed model, and one of robust accuracies below it."""
    radii = sorted({radius for bounds in group for radius in (*bounds.certified, *bounds.attacked)})
    rows = []
    for bounds in group:
        attacked = {radius: result.value for radius, result in bounds.attacked.items()}
        rows.append([f"{bounds.subject.name}: certified", *(wording.number(bounds.share(radius)) for radius in radii)])
        if attacked:
            cells = [wording.number(attacked.get(radius)) for radius in radii]
            rows.append([f"{bounds.subject.name}: attacked, without noise", *cells])
    return numbers(["", *(f"ℓ₂ ≤ {radius:g}" for radius in radii)], rows)
