"""What a page without a single warning still has to say: checks can only look at what was measured.

A model at chance, gradients as the only attack, numbers without evidence: no check fails, and nothing is shown by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.report import wording
from hardtack.results import REPORTED, Result, Run, source_of

CLEAN = "clean_accuracy"
ATTACKED = ("robust_accuracy", "worst_case_accuracy", "robustness_area")
ABOVE_CHANCE = 0.1  # of what lies between chance and 100 %: below it, robustness cannot be told from none
# what needs no gradient, also in the names of other packages: beside it an attack by gradients does not stand alone
_WITHOUT_GRADIENTS = ("square", "boundary", "hopskipjump", "nes", "spsa")
_WITH_SQUARE = ("autoattack", "autoattack:standard", "autoattack:plus")  # unless it is the version for random models


@dataclass(frozen=True, kw_only=True)
class Remark:
    """`short` stands in the headline, `message` among the warnings; `concerns` are runs with what is said of each."""

    short: str
    code: str
    message: str
    concerns: list[dict[str, Any]]


def remarks(runs: Sequence[Run]) -> list[Remark]:
    """What limits the numbers of these runs, beside the warnings."""
    return [
        remark for make in (_nothing_checked, _near_chance, _one_kind_of_attack, _unverifiable) for remark in make(runs)
    ]


def _nothing_checked(runs: Sequence[Run]) -> list[Remark]:
    results = [result for run in runs for result in run.results]
    if any(source_of(result) != REPORTED for result in results):
        return []
    message = "Checks are made while a model is measured, and nothing was: hardtack evaluate RUN suite=autoattack"
    return [Remark(short="nothing was checked", code="not measured", message=message, concerns=[])]


def _near_chance(runs: Sequence[Run]) -> list[Remark]:
    """Runs whose newest clean accuracy is at chance, as far as its interval tells."""
    concerns = []
    for number, run in enumerate(runs):
        clean = [r for r in run.results if r.metric == CLEAN and source_of(r) != REPORTED and _classes(r)]
        for result in sorted(clean, key=lambda result: result.created)[-1:]:
            chance = 1 / _classes(result)
            low = result.value if result.low is None else result.low
            if low <= chance + ABOVE_CHANCE * (1 - chance):
                about = f"{wording.with_interval(result)} on clean images, chance is {wording.number(chance)}"
                concerns.append(_concern(number, run, about))
    message = (
        "Clean accuracy is near chance: what remains correct under an attack says nothing about robustness, and checks "
        "that look at correctly classified images have almost none to look at."
    )
    return [Remark(short="near chance", code="near chance", message=message, concerns=concerns)] if concerns else []


def _classes(result: Result) -> int:
    """The number of classes, as far as it was stored."""
    table = result.extra.get("per_class")
    names = table.get("classes") if isinstance(table, dict) else None
    return len(names) if isinstance(names, list) else 0


def _one_kind_of_attack(runs: Sequence[Run]) -> list[Remark]:
    """Runs that were attacked by gradients alone; runs that were not attacked at all."""
    alone, never = [], []
    names: dict[str, None] = {}
    for number, run in enumerate(runs):
        results = [result for result in run.results if source_of(result) != REPORTED]
        attacked = [result for result in results if result.metric in ATTACKED]
        if attacked and all(map(_by_gradients, attacked)):
            single = [result for result in attacked if " + " not in (result.attack or "")]
            own = dict.fromkeys(wording.attack_name(result.attack, result.suite) for result in single)
            names |= own
            alone.append(_concern(number, run, " and ".join(own)))
        elif results and not attacked:
            never.append(_concern(number, run, "no attack"))
    if alone:
        attacks = " and ".join(map(_loud, names)) if 0 < len(names) <= 2 else "attacks by gradients"
        message = (
            f"Robust accuracy was measured with {attacks} alone. It is an upper bound, which a stronger attack lowers, "
            "and the check by an attack without gradients could not be made: hardtack evaluate RUN suite=autoattack"
        )
        return [Remark(short=f"{attacks} alone", code="attacks by gradients alone", message=message, concerns=alone)]
    if never and len(never) == len([run for run in runs if run.results]):
        message = "No model was attacked: hardtack evaluate RUN suite=autoattack threat=linf:8/255"
        return [Remark(short="nothing was attacked", code="no attack", message=message, concerns=never)]
    return []


def _by_gradients(result: Result) -> bool:
    """Whether all attacks behind a number follow gradients. Settings are not looked at: they may hold any word."""
    name, _, settings = (result.attack or result.suite).lower().partition(" ")
    if name in _WITH_SQUARE:
        return settings.partition(" ")[0] == "rand"
    return not any(other in name for other in _WITHOUT_GRADIENTS)


def _loud(name: str) -> str:
    """`PGD` of `pgd`."""
    return name.upper() if len(name) <= 4 else name


def _unverifiable(runs: Sequence[Run]) -> list[Remark]:
    """Numbers without evidence beside them: the section on warnings lists them."""
    count = sum(bool(a.unverifiable) and not a.reported for run in runs for a in run.agreements.values())
    if not count:
        return []
    short = f"{count} evaluation{'s' if count > 1 else ''} not verifiable"
    return [Remark(short=short, code="", message="", concerns=[])]


def _concern(number: int, run: Run, about: str) -> dict[str, Any]:
    return {"run": number, "name": run.label, "about": about}
