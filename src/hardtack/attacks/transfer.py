"""Transfer: images crafted on one model, evaluated on another.

The evaluated model is never asked for a gradient, so that masking its gradients does not protect it. A model that is
broken by transferred images but not by its own gradients is masking them (Papernot et al. 2017; Athalye et al. 2018).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.nearest import margin_at
from hardtack.attacks.outcome import AttackOutcome, better, nothing_yet
from hardtack.attacks.preserve_state import preserve_state
from hardtack.attacks.targets import TargetChoice, aim
from hardtack.base.annotations import AN_ATTACK, NOT_TYPED, Shown
from hardtack.base.config import WrittenAsText, check, choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models import find_weights, rebuild
from hardtack.models.files import sha256
from hardtack.threats import Threat


@dataclass(frozen=True)
class Source(WrittenAsText):
    """A model to craft on: a run folder or weights file, read when first needed, or in Python the module itself."""

    given: str | nn.Module

    @classmethod
    def parse(cls, given: Any) -> Source:
        if isinstance(given, Source):
            return given
        if not isinstance(given, nn.Module):
            given = str(given)
            find_weights(given)  # a path that does not exist is refused now, not after an hour
        return cls(given)

    def __str__(self) -> str:
        """The path; of a module only its class can be written down."""
        return self.given if isinstance(self.given, str) else type(self.given).__name__

    @functools.cached_property
    def model(self) -> nn.Module:
        return rebuild(self.given) if isinstance(self.given, str) else self.given

    def fingerprint(self) -> str:
        """Of the weights, so that results found with others do not pass for these."""
        if isinstance(self.given, str):
            return sha256(find_weights(self.given))[:12]
        digest = hashlib.sha256()
        for name, tensor in self.given.state_dict().items():
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()[:12]

    @contextlib.contextmanager
    def on(self, device: torch.device) -> Iterator[nn.Module]:
        """The model on a device; a module of the caller's goes back to where it was."""
        home = next(iter(self.model.parameters()), torch.empty(0, device=device)).device
        try:
            yield self.model.to(device)
        finally:
            if isinstance(self.given, nn.Module):
                self.model.to(home)


@attacks.register("transfer", help="images crafted on another model: attack.source=RUN")
@dataclass(frozen=True, kw_only=True)
class Transfer(Attack):
    """Craft on `source`, evaluate on the model that is attacked.

    source    a run folder or weights file whose model images are crafted on, or a list of them, of which the worst
              image is kept
    attack    the attack that crafts: its name or its settings (hardtack list attacks)
    weights   fingerprints of the sources, which hardtack fills in

    `threat`, `mode` and `seed` are handed to the attack that crafts, and so is the target, which the first source
    chooses. In Python a source may be a module. `broken_at` counts the sources tried, 0 being the clean image.
    """

    threat: Threat
    source: Annotated[Any, Shown("run folder, weights file or list of them")]
    attack: Annotated[Any, AN_ATTACK] = "pgd"
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0
    weights: Annotated[tuple[str, ...], NOT_TYPED] = ()

    uses_logit_gradient = False

    def __post_init__(self) -> None:
        check(self)
        given = self.source if isinstance(self.source, list | tuple) else (self.source,)
        if not given:
            raise UserError("'source' names no model to craft on")
        sources = tuple(Source.parse(source) for source in given)
        weights = tuple(source.fingerprint() for source in sources)
        if self.weights and self.weights != weights:
            named = ", ".join(map(str, sources))
            raise UserError(f"the weights of {named} are {', '.join(weights)}, not {', '.join(self.weights)}")
        object.__setattr__(self, "source", sources)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "attack", self._crafting_attack())

    def _crafting_attack(self) -> Attack:
        """The attack that crafts, under this threat, mode and seed."""
        shared = {key: getattr(self, key) for key in ("threat", "mode", "seed")}
        attack = {"name": self.attack} if isinstance(self.attack, str) else self.attack
        if isinstance(attack, Mapping):
            asked = attack.keys() & shared.keys()
            attack = choose(attacks, {"threat": self.threat, **attack}, path="attack")
            for key in sorted(asked):
                if getattr(attack, key) != shared[key]:
                    raise UserError(f"{key} is given to transfer, which hands it to the attack that crafts")
        if not isinstance(attack, Attack):
            raise UserError(f"'attack': {type(attack).__name__} is no attack that can craft for another model")
        if attack.target is not None:
            raise UserError("target is given to transfer, which hands it to the attack that crafts")
        mine = attack.settings()
        return dataclasses.replace(attack, **{key: value for key, value in shared.items() if key in mine})  # type: ignore[type-var]

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> AttackOutcome:
        """The caller has put `model` into `preserve_state`; the sources are put into it here."""
        with self.source[0].on(x.device) as first, preserve_state(first, mode=self.mode):
            goal, sign = aim(first, x, y, keys, self.seed, target, self.target)
        best = better(nothing_yet(x), x, margin_at(model, x, goal, sign), goal, sign, 0)
        blind = torch.ones_like(best.fooled)
        broken = torch.zeros_like(best.fooled)
        for number, source in enumerate(self.source, start=1):
            with source.on(x.device) as crafting, preserve_state(crafting, mode=self.mode):
                aimed = {} if sign > 0 else {"target": goal}
                crafted = self.attack.search(crafting, x, y, keys=keys, verdict=False, **aimed)
            best = better(best, crafted.x_adv, margin_at(model, crafted.x_adv, goal, sign), goal, sign, number)
            blind, broken = blind & crafted.zero_gradient, broken | crafted.not_finite
        return best._replace(zero_gradient=blind, not_finite=best.not_finite | broken)
