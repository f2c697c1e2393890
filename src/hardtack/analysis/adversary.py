"""The attack with which an analysis changes its images; its settings are those of `evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from hardtack.analysis.analysis import AnalysisContext
from hardtack.attacks import Ascent, as_attack
from hardtack.attacks.contract import own_threat, settings_of
from hardtack.base import randomness
from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_LOOKED_AT = 16  # images: enough to see whether the attack has gradients


USUAL = Threat("linf", Fraction(8, 255))


def threat_of(attack: Any) -> Threat | None:
    """The threat that an attack brings along: in its settings, or by its kind, as attacks on patches do."""
    if not isinstance(attack, Mapping | str):
        return settings_of(attack).get("threat")
    settings = {"name": attack} if isinstance(attack, str) else attack
    if "threat" in settings:
        return Threat.parse(settings["threat"])
    return own_threat(attacks.get(settings.get("name", "pgd")).make)


def optional_adversary(analysis: str, attack: Any, threat: Threat | None, *, steps: int) -> tuple[Threat | None, Any]:
    """Threat and attack of an analysis that may attack its images; (None, {}) where it does not."""
    threat = threat or threat_of(attack)
    if threat is None and attack:
        raise UserError(f"an attack needs its threat: {analysis}.threat=linf:8/255")
    return threat, make_adversary(attack, threat, steps=steps) if threat is not None else {}


def make_adversary(
    attack: Any, threat: Threat | None, *, usual: Threat = USUAL, steps: int = 20, reach: float = 2.5
) -> Any:
    """An attack under `threat`, from its name, its settings or a value made in Python.

    By default it is PGD with `steps` steps. Their total length is `reach` times the radius. Without a threat it has the
    one that the attack brings along, or the usual one.
    """
    threat = threat or threat_of(attack) or usual
    if not isinstance(attack, Mapping | str):
        if "threat" not in settings_of(attack):
            raise UserError(
                "'attack' must be the name of an attack, its settings, or an attack object that has a threat"
            )
        return _under(attack, threat)
    settings = {"name": "pgd", **({"name": attack} if isinstance(attack, str) else attack)}
    entry = attacks.get(settings["name"])
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm has its own number of steps
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
    """The attacked images. The randomness of each image depends only on its index and the seed."""
    return attacked(attack, model, x, y, index, seed)[0]


def attacked(attack: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The attacked images, and a mask of the images whose gradient was zero at the start of the attack."""
    outcome = as_attack(attack).run(model, x, y, keys=randomness.make_keys(index, seed))
    return outcome.x_adv.detach(), outcome.zero_gradient


def blind_notes(attack: Any, context: AnalysisContext) -> list[str]:
    """A note if the gradient is zero on some of the first images: the attack does not change these images."""
    x, y, index = context.images(0, min(_LOOKED_AT, context.count))
    attack = (
        dataclasses.replace(attack, steps=1) if isinstance(attack, Ascent) else attack
    )  # one step is enough to see it
    blind = int(attacked(attack, context.model, x, y, index, context.seed)[1].sum())
    note = f"the attack has no gradient to follow on {blind} of the first {len(x)} images: it does not change them"
    return [note] if blind else []
