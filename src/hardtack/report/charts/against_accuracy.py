"""What an analysis found of some runs beside how robust they are, measured alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hardtack.report import wording
from hardtack.report.charts.findings import Found
from hardtack.report.charts.subjects import where
from hardtack.results import Result, Run

ROBUST = ("worst_case_accuracy", "robust_accuracy")


def with_accuracy(found: Sequence[Found], runs: Sequence[Run]) -> list[tuple[Found, Result]]:
    """Each finding with its run's robustness, by the measure that most of these runs share, if three or more do."""
    measured: dict[Hashable, dict[int, tuple[Found, Result]]] = {}
    for one in found:
        for result in runs[one.run].results:
            same = result.weights_sha256 == one.weights or not one.weights
            if result.metric in ROBUST and same:
                key = (result.metric, result.threat, result.suite, result.protocol, *where(result))
                measured.setdefault(key, {})[one.run] = (one, result)
    if not measured:
        return []
    best = max(measured.values(), key=lambda pairs: (len(pairs), _worst(pairs)))
    return list(best.values()) if len(best) >= 3 else []


def said_of(result: Result) -> str:
    """How the robustness was measured."""
    attack = wording.attack_name(result.attack, result.suite)
    return " · ".join(part for part in (attack, wording.reach_of(result), wording.images(result)) if part)


def _worst(pairs: dict[int, tuple[Found, Result]]) -> bool:
    """Of measures that as many runs share, the worst case over all threats is preferred."""
    return next(iter(pairs.values()))[1].metric == ROBUST[0]
