"""The objective contract: what the trainer may ask of an objective, with defaults that do nothing.

An objective is two small classes in one file. The first is a frozen dataclass of settings; it is registered under the
name that recipes use (`objective: trades`). The second is a module that computes the loss:

    @objectives.register("focal", help="cross-entropy that gives less weight to easy images")
    @dataclass(frozen=True, kw_only=True)
    class FocalConfig(ObjectiveConfig):
        gamma: float = 2.0

        def build(self, model):
            return Focal(model, self)

    class Focal(Objective):
        def forward(self, x, y):
            loss = F.cross_entropy(self.model(x), y, reduction="none")
            return {"loss": ((1 - (-loss).exp()) ** self.config.gamma * loss).mean()}

A file of the user's with these lines works like a built-in one: `hardtack train … objective=focal --import focal.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hardtack.attacks import Mode
from hardtack.base.runtime import Runtime
from hardtack.objectives.adversary import TrainingAttack
from hardtack.threats import Threat


class ObjectiveConfig:
    """The settings of an objective. Subclasses are frozen dataclasses; only `build` must be written."""

    def build(self, model: nn.Module) -> Objective:
        """The objective that trains this model."""
        raise NotImplementedError

    def notes(self, *, epochs: float) -> Iterator[str]:
        """A sentence for every setting that has no effect, or an unexpected one, in a run of this many epochs."""
        yield from ()

    def threats(self) -> tuple[Threat, ...]:
        """The threats that are trained against; validation attacks within them. None by default."""
        return ()

    def attack_steps(self) -> int | None:
        """The fewest steps that a training attack takes for one update; None where nothing is attacked."""
        return None


class Objective(nn.Module):
    """`objective(x, y, **prepared)` returns a dict of scalars: `"loss"`, which is minimised, and parts that are logged.

    `x` is N×3×H×W in [0,1], `y` N labels or N×C probabilities. Parts other than the loss are detached. All state is in
    `state_dict()`, so that a killed run continues with it; parameters that the optimiser must not move are excluded by
    `optimised`. Only `forward` must be written.
    """

    adversary: TrainingAttack | None = None
    """The attack on the training batch. Where one is set, `prepare` gives `forward` its images as `x_adv`."""
    replays: int = 1
    """How many updates in a row are made on every batch."""
    has_masks: bool = False
    """Whether `masks` shows anything."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        super().__init__()
        self.model = model
        self.config = config

    def forward(self, *args: Any, **prepared: Any) -> dict[str, Tensor]:
        """`forward(x, y, **prepared)`: the loss and its parts. `prepared` is what `prepare` returned."""
        raise NotImplementedError

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf
    ) -> dict[str, Tensor]:
        """What `forward` needs and what takes no gradient in the weights: the attacked images, if there is an attack.

        `keys` are one int64 per image for `hardtack.base.randomness`; `epoch` is the time, with fractions.
        """
        return {} if self.adversary is None else {"x_adv": self.adversary(x, y, keys=keys, epoch=epoch)}

    def accelerate(self, runtime: Runtime) -> None:
        """Compile or capture what runs outside of `forward`. Called once, before the first step."""
        if self.adversary is not None:
            self.adversary.accelerate(runtime)

    @property
    def attack_mode(self) -> Mode | None:
        """The mode of the model (`train` or `eval`) while images are attacked; None where nothing is attacked."""
        return None if self.adversary is None else self.adversary.mode

    @property
    def optimised(self) -> nn.Module:
        """The module whose parameters the optimiser moves. By default all of the objective's."""
        return self

    def finish_step(self) -> None:
        """After every update, while the gradients are still there: move what the optimiser does not move."""

    def radius(self, epoch: float) -> dict[str, float]:
        """The size of the training attack at this time, for the log: `eps_share` and, with a single radius, `eps`."""
        return {} if self.adversary is None else self.adversary.radius(epoch)

    def masks(self, x: Tensor) -> Tensor:
        """The patches of these images that the objective hides, N×rows×columns bool, for the report."""
        raise NotImplementedError

    def export(self, folder: Path, name: str) -> None:
        """Write what belongs beside the weights `NAME.safetensors` in `folder`."""
