"""Curves of accuracy against eps, each with its band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import file_of
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.lines import lines_chart
from hardtack.results import Curve, CurveSet, Run, curves, is_share, source_of


@charts.register(
    "eps_curves",
    section=Section(id="curves", short="Curves", title="Robust accuracy against ε", order=10),
)
def eps_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart per norm and protocol: a metric against eps, every run a curve with its band."""
    order = {run.label: number for number, run in enumerate(runs)}
    return [_eps_chart(number, curve_set, order) for number, curve_set in enumerate(curves(runs))]


def _eps_chart(number: int, curve_set: CurveSet, order: dict[str, int]) -> dict[str, Any]:
    scale = wording.levels(*(point.result.threat for curve in curve_set.curves for point in curve.points))
    ticks = sorted({round(point.eps * scale, 4) for curve in curve_set.curves for point in curve.points})
    several = len({curve.run for curve in curve_set.curves}) < len(curve_set.curves)
    name = wording.metric_name(curve_set.metric)
    shown = sorted(curve_set.curves, key=lambda curve: order[curve.run])
    names = [curve.run + (f" ({curve.checkpoint})" if several and curve.checkpoint else "") for curve in shown]
    return lines_chart(
        id=f"curve-{number}",
        file=f"{curve_set.norm} {file_of(shown[0].points[-1].result)}",
        title=f"{name} against {wording.NORMS.get(curve_set.norm, curve_set.norm)} radius",
        x={
            "label": "ε, in 1/255" if scale == 255 else "ε",
            "suffix": "/255" if scale == 255 else "",
            "word": "ε",
            "ticks": ticks,
        },
        y={"label": name, "kind": "percent" if is_share(curve_set.metric) else "number"},
        series=[
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
        sums=_areas(shown, names, order),
        caption=_caption(curve_set),
        numbers=[_numbers(shown, names, ticks, scale)],
    )


def _areas(shown: Sequence[Curve], names: Sequence[str], order: dict[str, int]) -> dict[str, Any] | None:
    """The mean over all radii of every run that has one: a curve in a single number."""
    largest = {curve.area.threat for curve in shown if curve.area}
    if not largest:
        return None
    upto = f" up to {wording.threat_name(largest.pop())}" if len(largest) == 1 else ""
    rows = [
        {
            "run": order[curve.run],
            "name": name,
            "cells": [wording.with_interval(curve.area) if curve.area else "—"],
        }
        for curve, name in zip(shown, names, strict=True)
    ]
    return {"head": [{"name": f"Mean over all radii{upto}", "flag": None}], "rows": rows}


def _numbers(shown: Sequence[Curve], names: Sequence[str], ticks: Sequence[float], scale: int) -> dict[str, Any]:
    suffix = "/255" if scale == 255 else ""
    rows = []
    for curve, name in zip(shown, names, strict=True):
        at = {round(point.eps * scale, 4): point.result for point in curve.points}
        rows.append([name, *(wording.number(at[x].value, at[x].metric) if x in at else "—" for x in ticks)])
    return numbers(["Run", *(f"{x:g}{suffix if x else ''}" for x in ticks)], rows)


def _eps_points(curve: Curve, scale: int) -> list[list[float | None]]:
    return [
        [round(point.eps * scale, 4), point.result.value, point.result.low, point.result.high] for point in curve.points
    ]


def _caption(curve_set: CurveSet) -> str:
    last = curve_set.curves[0].points[-1].result
    bands = "" if last.low is None else f"bands: {last.interval}"
    parts = [curve_set.attack, curve_set.protocol, wording.images(last), wording.source(source_of(last)), bands]
    return " · ".join(part for part in parts if part)
