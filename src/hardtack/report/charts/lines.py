"""Curves: accuracy against eps with its band, and what training wrote down step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from hardtack.report import wording
from hardtack.report.charts.subjects import file_of, numbers
from hardtack.results import Curve, CurveSet, Run, curves, source_of

MOST_POINTS = 240


def eps_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart per norm and protocol: a metric against eps, every run a curve with its band."""
    order = {run.label: number for number, run in enumerate(runs)}
    return [_eps_chart(number, found, order) for number, found in enumerate(curves(runs))]


def training_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Loss, validation accuracy and learning rate against the step; a chart without data is left out."""
    charts = [
        _training_chart("loss", "Training loss", runs, "train", {"loss": "loss"}, kind="number"),
        _training_chart(
            "validation",
            "Validation accuracy",
            runs,
            "validation",
            {"clean_accuracy": "clean", "robust_accuracy": "robust"},
            kind="percent",
        ),
        _training_chart("lr", "Learning rate", runs, "train", {"lr": "learning rate"}, kind="number"),
    ]
    return [chart for chart in charts if chart["series"]]


def _eps_chart(number: int, found: CurveSet, order: dict[str, int]) -> dict[str, Any]:
    scale = wording.levels(*(point.result.threat for curve in found.curves for point in curve.points))
    ticks = sorted({round(point.eps * scale, 4) for curve in found.curves for point in curve.points})
    several = len({curve.run for curve in found.curves}) < len(found.curves)
    name = wording.metric_name(found.metric)
    shown = sorted(found.curves, key=lambda curve: order[curve.run])
    names = [curve.run + (f" ({curve.checkpoint})" if several and curve.checkpoint else "") for curve in shown]
    return {
        "id": f"curve-{number}",
        "kind": "lines",
        "file": f"{found.norm} {file_of(shown[0].points[-1].result)}",
        "title": f"{name} against {wording.NORMS.get(found.norm, found.norm)} radius",
        "x": {
            "label": "ε, in 1/255" if scale == 255 else "ε",
            "suffix": "/255" if scale == 255 else "",
            "word": "ε",
            "ticks": ticks,
        },
        "y": {"label": name, "kind": "percent" if wording.is_share(found.metric) else "number"},
        "series": [
            {
                "run": order[curve.run],
                "name": name,
                "dash": False,
                "band": True,
                "marks": True,
                "points": _eps_points(curve, scale),
            }
            for curve, name in zip(shown, names, strict=True)
        ],
        "choose": None,
        "sums": _areas(shown, names, order),
        "caption": _caption(found),
        "numbers": [_numbers(shown, names, ticks, scale)],
    }


def _areas(found: Sequence[Curve], names: Sequence[str], order: dict[str, int]) -> dict[str, Any] | None:
    """The mean over all radii of every run that has one: a curve in a single number."""
    largest = {curve.area.threat for curve in found if curve.area}
    if not largest:
        return None
    upto = f" up to {wording.threat_name(largest.pop())}" if len(largest) == 1 else ""
    rows = [
        {
            "run": order[curve.run],
            "name": name,
            "cells": [wording.with_interval(curve.area) if curve.area else "—"],
        }
        for curve, name in zip(found, names, strict=True)
    ]
    return {"head": [{"name": f"Mean over all radii{upto}", "flag": None}], "rows": rows}


def _numbers(found: Sequence[Curve], names: Sequence[str], ticks: Sequence[float], scale: int) -> dict[str, Any]:
    suffix = "/255" if scale == 255 else ""
    rows = []
    for curve, name in zip(found, names, strict=True):
        at = {round(point.eps * scale, 4): point.result for point in curve.points}
        rows.append([name, *(wording.number(at[x].value, at[x].metric) if x in at else "—" for x in ticks)])
    return numbers(["Run", *(f"{x:g}{suffix if x else ''}" for x in ticks)], rows)


def _eps_points(curve: Curve, scale: int) -> list[list[float | None]]:
    return [
        [round(point.eps * scale, 4), point.result.value, point.result.low, point.result.high] for point in curve.points
    ]


def _caption(found: CurveSet) -> str:
    last = found.curves[0].points[-1].result
    bands = "" if last.low is None else f"bands: {last.interval}"
    parts = [found.attack, found.protocol, wording.images(last), wording.source(source_of(last)), bands]
    return " · ".join(part for part in parts if part)


def _training_chart(
    id: str, title: str, runs: Sequence[Run], line_kind: str, fields: dict[str, str], *, kind: str
) -> dict[str, Any]:
    series = []
    for number, run in enumerate(runs):
        for dash, (field, word) in enumerate(fields.items()):
            points = _metric_points(run.metrics, line_kind, field)
            if points:
                name = run.label if len(fields) == 1 else f"{run.label}, {word}"
                series.append(
                    {
                        "run": number,
                        "name": name,
                        "dash": bool(dash),
                        "band": False,
                        "marks": len(points) < 30,
                        "points": points,
                    }
                )
    return {
        "id": f"training-{id}",
        "kind": "lines",
        "title": title,
        "x": {"label": "step", "suffix": "", "word": "step", "ticks": None},
        "y": {"label": title, "kind": kind},
        "series": series,
        "choose": None,
        "caption": "solid: clean · dashed: robust" if len(fields) > 1 else "",
        "numbers": [],
    }


def _metric_points(metrics: list[dict[str, Any]], kind: str, field: str) -> list[list[float]]:
    points = [
        [float(line["step"]), float(line[field])]
        for line in metrics
        if line.get("kind") == kind and _is_number(line.get(field)) and _is_number(line.get("step"))
    ]
    points.sort(key=lambda point: point[0])
    return _thinned(points)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """At most a few hundred points: the mean of each bucket, so that no spike decides what is seen."""
    if len(points) <= MOST_POINTS:
        return points
    edges = [round(i * len(points) / MOST_POINTS) for i in range(MOST_POINTS + 1)]
    buckets = [points[start:end] for start, end in itertools.pairwise(edges)]
    return [[bucket[-1][0], math.fsum(value for _, value in bucket) / len(bucket)] for bucket in buckets if bucket]
