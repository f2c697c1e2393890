"""What an analysis found of some runs beside how robust they are, measured alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hardtack.report import wording
from hardtack.report.charts.comparable_analyses import AnalysedRun
from hardtack.report.charts.comparable_runs import where
from hardtack.results import SWEEPS, Result, Run

# the first of what as many runs share, by the attack that leaves least
ROBUST = ("worst_case_accuracy", "robust_accuracy", "robustness_area")
TELLING = 0.02  # a measure by which runs differ less, such as an attack that leaves nothing, comes after others


def with_accuracy(analysed: Sequence[AnalysedRun], runs: Sequence[Run]) -> list[tuple[AnalysedRun, Result]]:
    """Each finding with its run's robustness, by the measure that most of these runs share, if three or more do."""
    measured: dict[Hashable, dict[int, tuple[AnalysedRun, Result]]] = {}
    for entry in analysed:
        for result in runs[entry.run].results:
            same = result.weights_sha256 == entry.weights or not entry.weights
            if result.metric in ROBUST and same and not _one_of_many(result):
                key = (result.metric, result.attack, result.threat, result.suite, result.protocol, *where(result))
                measured.setdefault(key, {})[entry.run] = (entry, result)
    if not measured:
        return []
    best = max(measured.values(), key=lambda pairs: (len(pairs), *_worth([result for _, result in pairs.values()])))
    return list(best.values()) if len(best) >= 3 else []


def measured_by(result: Result) -> str:
    """How the robustness was measured."""
    attack = wording.attack_name(result.attack, result.suite)
    return " · ".join(part for part in (attack, wording.reach_of(result), wording.images(result)) if part)


def _one_of_many(result: Result) -> bool:
    """A radius of a sweep, the first of which is none at all: their mean stands for them."""
    return result.suite in SWEEPS and result.metric != ROBUST[2]


def _worth(results: Sequence[Result]) -> tuple[bool, int, float]:
    """Whether a measure tells the runs apart, its place among the measures, and how little it leaves."""
    values = [result.value for result in results]
    return max(values) - min(values) >= TELLING, -ROBUST.index(results[0].metric), -sum(values)
