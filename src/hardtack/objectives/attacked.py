"""What the objectives share that attack the batch before they train on it: settings, attack and batch repetition."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from hardtack.attacks import Ascent
from hardtack.base.config import Choice
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.objectives.adversary import Adversary, TrainingAttack, Warmup, training_attack
from hardtack.objectives.multi_norm import Combine, CombinedAdversary, RandomAdversary
from hardtack.objectives.standard import Smoothing
from hardtack.objectives.statistics import Separate
from hardtack.threats import Threat

DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"))
AttackChoice = Annotated[Any, Choice(attacks)]


@dataclass(frozen=True, kw_only=True)
class AttackSettings:
    """The settings of the inner attack. An objective's configuration has these and `ObjectiveConfig` as its bases.

    attack                the attack on the training images: a name and its settings (attack.steps, attack.threat …)
    attacks               several attacks in place of one
    combine               of several attacks: the strongest for each image (max), all of them (average), or one drawn
                          for each image (random)
    warmup                how the radius of the attack grows over the first epochs
    label_smoothing       share of the label that is spread over all classes
    separate_statistics   separate batch-norm statistics for clean and attacked images; the model is evaluated and saved
                          with those of the attacked or of the clean images; null: one set of statistics
    """

    attack: AttackChoice = DEFAULT_ATTACK
    attacks: tuple[AttackChoice, ...] = ()
    combine: Combine = "max"
    warmup: Warmup = field(default_factory=Warmup)
    label_smoothing: Smoothing = 0.0
    separate_statistics: Separate | None = None

    def __post_init__(self) -> None:
        if self.attacks and self.attack not in (None, type(self).attack):
            raise UserError("give attack or attacks, not both (attack: null removes the attack of a base recipe)")
        if not self.attacks and self.attack is None:
            raise UserError("there is no attack to train against: give attack, or a list of attacks")
        for attack in self.chosen_attacks():
            training_attack(attack)  # refuses what cannot be trained with

    def notes(self, *, epochs: float) -> Iterator[str]:
        yield from self.warmup.notes(epochs=epochs)
        if self.combine != "max" and len(self.attacks) < 2:
            yield "objective.combine has no effect: it needs several objective.attacks"

    def chosen_attacks(self) -> tuple[Ascent, ...]:
        return self.attacks or (self.attack,)

    def threats(self) -> tuple[Threat, ...]:
        return tuple(dict.fromkeys(attack.threat for attack in self.chosen_attacks()))

    def attack_steps(self) -> int:
        return min(attack.steps for attack in self.chosen_attacks())

    def make_adversary(self, model: nn.Module, *, loss: Literal["ce", "kl"] = "ce") -> TrainingAttack:
        """The attack on this model. It maximises `loss` unless its own settings name another one."""
        chosen = [dataclasses.replace(attack, loss=attack.loss or loss) for attack in self.chosen_attacks()]
        if len(chosen) == 1:
            return Adversary(model, chosen[0], self.warmup)
        if self.combine == "random":
            return RandomAdversary(model, chosen, self.warmup)
        return CombinedAdversary(model, chosen, self.warmup, combine=self.combine, loss=loss)


def repeat_for(values: Tensor, attacked: Tensor) -> Tensor:
    """Labels or logits N×…, repeated for each of the K attacked batches that are concatenated in `attacked` (K·N×…)."""
    return values.repeat(len(attacked) // len(values), *[1] * (values.ndim - 1))
