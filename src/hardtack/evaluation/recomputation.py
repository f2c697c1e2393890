"""Stored results compared, field by field, with results that were computed again from the verdict columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hardtack.results import Result, find_metric
from hardtack.results.disagreement import Disagreement, label, same_number
from hardtack.results.evidence import same_json

# the numbers, and what the id decides
RECALLED = (
    "metric", "threat", "value", "low", "high", "n", "interval", "suite", "data", "data_description", "seed",
    "protocol",
)  # fmt: skip


def compare_results(
    stored: Sequence[Result], expected: Sequence[Result], fields: Iterable[str], *, source: str = "the verdict file"
) -> list[Disagreement]:
    """A line for each field that differs, for each stored result that should not be there, and for each missing one."""
    names, wrong = list(fields), []
    pairs, forged, missing = match_results(stored, expected)
    for result, other in pairs:
        for name in names:
            mine, theirs = _field(result, name), _field(other, name)
            if not (same_number(mine, theirs) or same_json(mine, theirs)):
                wrong.append(Disagreement(about=label(result), field=name, stored=mine, evidence=theirs, source=source))
    for result in forged:
        text = "no such result"
        wrong.append(Disagreement(about=label(result), field="line", stored="a line", evidence=text, source=source))
    for result in missing:
        if find_metric(result.metric).derived:
            continue  # an older version did not write it, and nothing is hidden by its absence
        wrong.append(Disagreement(about=label(result), field="line", stored="no line", evidence="one", source=source))
    return wrong


def match_results(
    stored: Sequence[Result], expected: Sequence[Result]
) -> tuple[list[tuple[Result, Result]], list[Result], list[Result]]:
    """Pairs of a stored and an expected result, stored ones without a partner, and expected ones without.

    Results with the same metric, threat and attack are pairs; the others are pairs in their order, so that a renamed
    metric is compared with the result that it was.
    """
    pairs: list[tuple[Result, Result]] = []
    rest, left = list(stored), list(expected)
    keys: tuple[Callable[[Result], Any], ...] = (
        lambda result: (result.metric, result.threat, result.attack, result.attack_settings.get("kind")),
        lambda result: (result.metric, result.threat),
        lambda result: result.metric,
        lambda result: None,
    )
    for key in keys:
        for result in list(rest):
            partner = next((other for other in left if same_json(key(other), key(result))), None)
            if partner is not None:
                pairs.append((result, partner))
                rest.remove(result)
                left.remove(partner)
    return pairs, rest, left


def _field(result: Result, name: str) -> Any:
    """A field, or with `extra.NAME` an entry of the further ones."""
    outer, dot, inner = name.partition(".")
    return getattr(result, outer).get(inner) if dot else getattr(result, outer)
