"""Which attack broke how many images: every run a bar of what still stands, what fell to whom, and what was wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_runs import ComparedRun, attacked, comparable_results, described
from hardtack.report.charts.section import Section
from hardtack.report.kinds.chart import numbers
from hardtack.report.kinds.stack import stack_chart
from hardtack.results import SWEEPS, Result, Run, comparable

STANDING, WRONG, OTHERS = "correct under attack", "wrong without attack", "other attacks"
MOST = 7  # attacks with a colour of their own


@charts.register(
    "breakdown",
    section=Section(id="breakdown", short="Attacks", title="Attack by attack", order=20),
)
def breakdown_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart, to switch between evaluations; the first has most runs."""
    last = {id(result) for run in runs for result in _last_of_each_evaluation(run)}
    groups = comparable_results(runs, lambda result: id(result) in last, _alike)
    views = [_view(compared_runs) for compared_runs in groups]
    if not views:
        return []
    views.sort(key=lambda view: (-len(view["bars"]), -len(view["parts"])))
    return [
        stack_chart(
            id="breakdown-0",
            title="Which attack broke the images",
            x="Share of the images",
            views=views,
            numbers=[_numbers(view) for view in views],
        )
    ]


def _last_of_each_evaluation(run: Run) -> list[Result]:
    """Where several threats were tried, the last result is the worst case over them."""
    last_results: dict[Any, Result] = {}
    for result in run.results:
        attacked = result.metric in ("robust_accuracy", "worst_case_accuracy")
        if attacked and result.suite not in SWEEPS and result.extra.get("broken_by") is not None:
            last_results[result.evaluation, result.extra.get("column")] = result
    return list(last_results.values())


def _alike(result: Result) -> tuple[Any, ...]:
    return (*comparable(result), result.extra.get("column"))


def _view(compared_runs: Sequence[ComparedRun]) -> dict[str, Any]:
    results = [compared.results[-1] for compared in compared_runs]
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.extra["broken_by"])
    names = [name for name, count in total.most_common() if count]
    shown, rest = (names, []) if len(names) <= MOST else (names[: MOST - 1], names[MOST - 1 :])
    parts = [STANDING, *_short(shown), *([OTHERS] if rest else []), WRONG]
    roles = ["standing", *(str(place) for place in range(len(parts) - 2)), "wrong"]
    bars = []
    for compared, result in zip(compared_runs, results, strict=True):
        broken = result.extra["broken_by"]
        fallen = [broken.get(name, 0) for name in shown]
        fallen += [sum(broken.get(name, 0) for name in rest)] if rest else []
        standing = round(result.value * result.n)
        counts = [standing, *fallen, max(0, result.n - standing - sum(fallen))]
        bars.append({"run": compared.run, "name": compared.name, "n": result.n, "counts": counts})
    first = results[0]
    column = first.extra.get("column")
    return {
        **attacked(first),
        "parts": [{"name": name, "role": role} for name, role in zip(parts, roles, strict=True)],
        "bars": bars,
        "caption": described(first, first.attack or "", "" if column else first.protocol),
    }


def _short(names: Sequence[str]) -> list[str]:
    """`apgd_ce linf:8/255` by its attack alone where all have the same threat."""
    split = [name.rpartition(" ") for name in names]
    one_threat = len({threat for _, _, threat in split}) == 1
    return [
        (attack if one_threat else f"{attack}, {wording.threat_name(threat)}") if attack else threat
        for attack, _, threat in split
    ]


def _numbers(view: dict[str, Any]) -> dict[str, Any]:
    head = ["Run", *(part["name"] for part in view["parts"]), "images"]
    rows = [[bar["name"], *(f"{count:,}" for count in bar["counts"]), f"{bar['n']:,}"] for bar in view["bars"]]
    return numbers(head, rows, view["name"])
