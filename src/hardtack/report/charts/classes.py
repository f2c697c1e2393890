"""Accuracy by class, clean and under attack: an average hides the classes that pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, attacked, comparable_results, described, where
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers, rounded
from hardtack.report.kinds.dots import dots_chart
from hardtack.results import SWEEPS, Result, Run, comparable, wilson

ALL_SHOWN = 20  # classes; of more, the chart shows the worst
WORST = 10


@charts.register(
    "classes",
    section=Section(id="classes", short="Classes", title="Class by class", order=60),
)
def class_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart, to switch between evaluations: attacked ones first, clean ones where there is nothing else."""
    groups = comparable_results(runs, _is_attacked, lambda result: (*comparable(result), result.extra.get("column")))
    groups = groups or comparable_results(runs, _is_clean, where)
    views = [_view(compared_runs) for compared_runs in groups]
    if not views:
        return []
    return [
        dots_chart(
            id="classes-0",
            title="Accuracy by class",
            x="Accuracy",
            views=views,
            numbers=[_numbers(compared_runs, view) for compared_runs, view in zip(groups, views, strict=True)],
        )
    ]


def _is_attacked(result: Result) -> bool:
    return result.metric == "robust_accuracy" and "per_class" in result.extra and result.suite not in SWEEPS


def _is_clean(result: Result) -> bool:
    return result.metric == "clean_accuracy" and "per_class" in result.extra


def _shares(result: Result | None) -> list[float | None] | None:
    if result is None or "per_class" not in result.extra:
        return None
    per_class = result.extra["per_class"]
    return [rounded(right / n) if n else None for right, n in zip(per_class["right"], per_class["n"], strict=True)]


def _both(compared: ComparedRun) -> tuple[list[float | None] | None, list[float | None] | None]:
    """Clean and robust."""
    result = compared.results[-1]
    if result.metric == "clean_accuracy":
        return _shares(result), None
    return _shares(compared.beside("clean_accuracy", result.evaluation)), _shares(result)


def _view(compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    first = compared_runs[0].results[-1]
    classes, n = first.extra["per_class"]["classes"], first.extra["per_class"]["n"]
    pairs = [_both(compared) for compared in compared_runs]
    decisive = np.array([robust or clean for clean, robust in pairs], dtype=float)  # None becomes NaN
    order = sorted((place for place in range(len(classes)) if n[place]), key=lambda place: decisive[:, place].mean())
    rows = order if len(classes) <= ALL_SHOWN else order[:WORST]
    which_classes = "" if len(classes) <= ALL_SHOWN else f"the {WORST} worst of {len(classes)} classes"
    clean_only = pairs[0][1] is None
    dots = "" if clean_only else "open: clean, filled: under attack"
    clean = {"name": f"clean · {wording.images(first)}", "file": f"clean {first.data} {first.n}"}
    return {
        **(clean if clean_only else attacked(first)),
        "rows": [str(classes[place]) for place in rows],
        "counts": [n[place] for place in rows],
        "series": [
            {
                "run": compared.run,
                "name": compared.name,
                "clean": unharmed and [_with_interval(unharmed[place], n[place]) for place in rows],
                "robust": robust and [_with_interval(robust[place], n[place]) for place in rows],
            }
            for compared, (unharmed, robust) in zip(compared_runs, pairs, strict=True)
        ],
        "caption": described(first, which_classes, dots, "worst first"),
    }


def _with_interval(share: float | None, n: int) -> list[float | None] | None:
    if share is None:
        return None
    return [share, *(rounded(bound) for bound in wilson(round(share * n), n))]


def _numbers(compared_runs: Sequence[ComparedRun], view: dict[str, Any]) -> dict[str, Any]:
    """Every class, also those the chart leaves out."""
    per_class = compared_runs[0].results[-1].extra["per_class"]
    columns: list[tuple[str, list[float | None]]] = []
    for compared in compared_runs:
        clean, robust = _both(compared)
        columns += [(f"{compared.name}, clean", clean)] if clean else []
        columns += [(f"{compared.name}, robust", robust)] if robust else []
    rows = [
        [str(name), f"{per_class['n'][place]:,}", *(wording.number(shares[place]) for _, shares in columns)]
        for place, name in enumerate(per_class["classes"])
    ]
    return numbers(["Class", "images", *(name for name, _ in columns)], rows, view["name"])
