"""`ht.objective`: the loss of a method in a training loop of one's own.

    objective = ht.objective("trades", model, threat="linf:8/255", beta=6)
    for x, y in loader:
        optimiser.zero_grad()
        objective(x, y)["loss"].backward()
        optimiser.step()
        objective.finish_step()

It is the module that `ht.train` minimises, with its attack inside. What the attack changes in the model for the time
of a call (training mode, gradients of parameters) is put back before the loss is computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hardtack.attacks import Ascent
from hardtack.base.config import choose, nested
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.objectives.contract import Objective, ObjectiveConfig

_OF_ATTACK = tuple(item.name for item in dataclasses.fields(Ascent))


def objective(name: str | Mapping[str, Any] | ObjectiveConfig, model: nn.Module, **settings: Any) -> Objective:
    """The loss of a method (`hardtack list objectives`) for this model: `objective(x, y)` gives a dict with "loss".

    Settings are those of a recipe's section `objective`; those of its attack may stand beside them: `threat="l2:0.5"`,
    `steps=7`. `x` is N×3×H×W in [0,1] and never normalised. The attack starts elsewhere in every call, as torch's
    generator says; `objective(x, y, **objective.prepare(x, y, keys=…, epoch=…))` fixes keys and time (of a warm-up).
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"an objective needs the model that it trains, a torch.nn.Module, found {type(model).__name__}")
    made = _config(name, nested(settings)).build(model)
    first = next(iter(model.parameters()), None)
    if first is not None:
        made.to(first.device)
    _check_first_call(made)
    return made


def _config(name: str | Mapping[str, Any] | ObjectiveConfig, settings: dict[str, Any]) -> ObjectiveConfig:
    if isinstance(name, ObjectiveConfig):
        if settings:
            raise UserError(f"{', '.join(settings)}: an objective that was made in Python already has its settings")
        return name
    named = {"name": name} if isinstance(name, str) else dict(name)
    chosen: ObjectiveConfig = choose(objectives, with_attack({**named, **settings}), path="objective")
    return chosen


def with_attack(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section `objective` in which settings of the attack may stand beside those of the objective."""
    settings = dict(section)
    make: Any = objectives.get(str(settings.get("name"))).make
    own = {item.name for item in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else set()
    own.add("name")
    loose = {key: settings.pop(key) for key in list(settings) if key in _OF_ATTACK and key not in own}
    if loose and "attack" not in own:
        raise UserError(
            f"{', '.join(loose)}: the objective '{settings['name']}' attacks nothing; one that does is 'adversarial'"
        )
    if loose:
        attack = settings.get("attack", {})
        if not isinstance(attack, str | Mapping):
            raise UserError(f"{', '.join(loose)}: the attack that was made in Python already has its settings")
        settings["attack"] = {**({"name": attack} if isinstance(attack, str) else attack), **loose}
    return settings


def _check_first_call(made: Objective) -> None:
    """Normalised images would be attacked in wrong units without a word; one look at the first batch finds them."""

    def check(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = given[0] if given else named.get("x")
        if not torch.compiler.is_compiling():
            handle.remove()
            if isinstance(x, torch.Tensor):
                _check_range(x)

    handle = made.register_forward_pre_hook(check, with_kwargs=True)


def _check_range(x: torch.Tensor) -> None:
    if not len(x):
        raise UserError("this batch holds no images")
    low, high = x.min().item(), x.max().item()
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        raise UserError(
            f"images must lie in [0,1], found [{low:.4g}, {high:.4g}]; "
            "undo any normalisation and put it inside the model: ht.wrap(module, mean=…, std=…)"
        )
