"""What all objectives share that attack the batch before they train on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from hardtack.attacks import Ascent, Mode
from hardtack.base.config import Choice
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.objectives.adversary import Adversary, Warmup
from hardtack.objectives.multi_norm import Combine, Drawn, Several
from hardtack.objectives.standard import Smoothing
from hardtack.objectives.statistics import Paths, Separate
from hardtack.threats import Threat

DEFAULT_ATTACK = Ascent(threat=Threat.parse("linf:8/255"))
AnAttack = Annotated[Any, Choice(attacks)]


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The settings of the inner problem.

    attack               one attack, or
    attacks, combine     several of them: the strongest for each image (max), all (average), one for each (random)
    separate_statistics  batch-norm statistics of clean and attacked images apart; the model is judged and saved with
                         those of the `attacked` or of the `clean` ones
    """

    attack: AnAttack = DEFAULT_ATTACK
    attacks: tuple[AnAttack, ...] = ()
    combine: Combine = "max"
    warmup: Warmup = field(default_factory=Warmup)
    label_smoothing: Smoothing = 0.0
    separate_statistics: Separate | None = None

    def __post_init__(self) -> None:
        if self.attacks and self.attack not in (None, type(self).attack):
            raise UserError("give attack or attacks, not both (attack: null drops the one of a base)")
        if not self.attacks and self.attack is None:
            raise UserError("there is nothing to train against: give attack, or a list of attacks")

    def remarks(self, *, epochs: float) -> Iterator[str]:
        """Settings that do not do what they seem to in a run of so many epochs."""
        yield from self.warmup.remarks(epochs=epochs)
        if self.combine != "max" and len(self.attacks) < 2:
            yield "sets objective.combine without effect: it is for several objective.attacks"


def make_players(
    model: nn.Module, config: Attacked, *, loss: Literal["ce", "kl"] = "ce"
) -> tuple[Adversary | Several, Paths]:
    """The attack on the model, which climbs `loss` unless it was told otherwise, and the paths of its two batches."""
    paths = Paths(model, config.separate_statistics)
    found = config.attacks or (config.attack,)
    given = [dataclasses.replace(one, loss=one.loss or loss) if isinstance(one, Ascent) else one for one in found]
    if len(given) == 1:
        return Adversary(paths.attacked, given[0], config.warmup), paths
    if config.combine == "random":
        return Drawn(paths.attacked, given, config.warmup), paths
    return Several(paths.attacked, given, config.warmup, combine=config.combine, loss=loss), paths


class AttackedObjective(nn.Module):
    """A model and its adversary: `prepare` attacks the batch, `parts` says what is minimised on it."""

    climbs: Literal["ce", "kl"] = "ce"  # what the attack climbs unless it was told otherwise

    def __init__(self, model: nn.Module, config: Any) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.adversary, self.paths = make_players(model, config, loss=self.climbs)
        self.second = self.paths.second
        self.prepare = self.adversary.prepare

    @property
    def attacked_in(self) -> Mode:
        """The mode of the model while its images are attacked; of several attacks `train` if one asks for it."""
        found = self.config.attacks or (self.config.attack,)
        return "train" if any(attack.mode == "train" for attack in found) else "eval"

    def forward(self, x: Tensor, y: Tensor, x_adv: Tensor | None = None) -> dict[str, Tensor]:
        """x N×3×H×W in [0,1], y N labels or N×C probabilities, x_adv from `prepare`."""
        return self.parts(x, y, self.prepare(x, y)["x_adv"] if x_adv is None else x_adv)

    def parts(self, x: Tensor, y: Tensor, x_adv: Tensor) -> dict[str, Tensor]:
        raise NotImplementedError


def like(values: Tensor, images: Tensor) -> Tensor:
    """Labels or logits N×… once more for each of the attacked batches that stand one behind the other."""
    return values.repeat(len(images) // len(values), *[1] * (values.ndim - 1))
