"""The attack that an analysis disturbs its images with, from settings as `evaluate` takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hardtack.analysis.analysis import AnalysisContext
from hardtack.attacks import Ascent, as_attack
from hardtack.attacks.contract import settings_of
from hardtack.base import randomness
from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_LOOKED_AT = 16  # images, where a few are enough to know


def make_adversary(given: Any, threat: Threat, *, steps: int = 20, reach: float = 2.5) -> Any:
    """An attack under `threat`, from its name, its settings or a value made in Python.

    Unless told, it is PGD of `steps` steps which together are `reach` times the radius long.
    """
    if not isinstance(given, Mapping | str):
        if "threat" not in settings_of(given):
            raise UserError("'attack' is a name, settings, or an attack that has a threat")
        return _under(given, threat)
    settings = {"name": "pgd", **({"name": given} if isinstance(given, str) else given)}
    entry = attacks.get(settings["name"])
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm brings its one step along
        settings = {"steps": steps, **settings}
        if isinstance(settings["steps"], int) and not {"step", "relative_step"} & settings.keys():
            settings["relative_step"] = reach / max(1, settings["steps"])
    return _under(choose(attacks, {"threat": threat, **settings}, path="attack"), threat)


def _under(attack: Any, threat: Threat) -> Any:
    if attack.threat != threat:
        raise UserError(
            f"the attack has threat {attack.threat}, but the analysis has threat {threat}: give the threat only once"
        )
    return attack


def moved(attack: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor, seed: int) -> Tensor:
    """The attacked images; what is random in each follows from its number and the seed."""
    return attacked(attack, model, x, y, index, seed)[0]


def attacked(attack: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The same, and for which images the gradient at the start was zero, so that the attack had nothing to follow."""
    outcome = as_attack(attack).run(model, x, y, keys=randomness.make_keys(index, seed))
    return outcome.x_adv.detach(), outcome.zero_gradient


def blind_notes(attack: Any, context: AnalysisContext) -> list[str]:
    """A sentence if the attack has no gradient to follow on some of the first images, and so shows nothing there."""
    x, y, index = context.images(0, min(_LOOKED_AT, context.count))
    attack = dataclasses.replace(attack, steps=1) if isinstance(attack, Ascent) else attack  # the first step tells
    blind = int(attacked(attack, context.model, x, y, index, context.seed)[1].sum())
    said = f"the attack has no gradient to follow on {blind} of the first {len(x)} images: it does not change them"
    return [said] if blind else []
