"""The inner player of adversarial training: an attack on the bare model, with a radius that may grow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent, ascent_step
from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.capture import Captured
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """Radius of the training attack over the first epochs: a fraction of eps that rises to 1.

    clean   epochs at the start that are not attacked at all
    epochs  over which the radius rises after them, `linear` or along a quarter of a `sine`
    hold    `epoch` keeps it constant inside an epoch, so that the first one is clean (the XCiT recipe); `step` lets it
            rise at every step
    step    of the attack meanwhile: `scaled` with the radius, or of its `final` length from the start (the XCiT recipe)
    """

    epochs: Annotated[float, Field(ge=0)] = 0.0
    shape: Literal["linear", "sine"] = "linear"
    hold: Literal["step", "epoch"] = "step"
    clean: Annotated[float, Field(ge=0)] = 0.0
    step: Literal["scaled", "final"] = "scaled"

    def remarks(self, *, epochs: float) -> Iterator[str]:
        """What is odd about it in a run of so many epochs; a sentence whose subject is the run."""
        if self.clean + self.epochs >= epochs:
            yield "is all warm-up: the attack's, objective.warmup, is no shorter than train.epochs"

    def factor(self, epoch: float) -> float:
        epoch -= self.clean
        if epoch < 0:
            return 0.0
        if epoch >= self.epochs:
            return 1.0
        progress = (math.floor(epoch) if self.hold == "epoch" else epoch) / self.epochs
        return math.sin(progress * math.pi / 2) if self.shape == "sine" else progress

    def sizes(self, attack: Ascent, epoch: float, device: torch.device) -> tuple[Tensor, Tensor]:
        """Radius of the attack and length of its steps at this time, each one number on the device."""
        final = torch.full((), attack.threat.radius, device=device)
        radius = torch.full((), attack.threat.radius * self.factor(epoch), device=device)
        return radius, attack.step_length(final if self.step == "final" else radius)


def for_training(attack: Any) -> Ascent:
    """The attack, which returns the last point it reached unless told otherwise; anything but an ascent is refused."""
    if not isinstance(attack, Ascent):
        raise UserError(f"training needs an ascent attack such as fgsm or pgd, found {type(attack).__name__}")
    return dataclasses.replace(attack, keep=attack.keep or "last")


class Adversary:
    """Calls the attack on the model; `accelerate` makes it one compiled step replayed as a CUDA graph."""

    ball: Any = None  # the geometry that takes the place of the threat's, if any

    def __init__(self, model: nn.Module, attack: Ascent, warmup: Warmup) -> None:
        self.model = model
        self.attack = for_training(attack)
        self.warmup = warmup
        self._search: Callable[..., Tensor] = self._eager_search(ascent_step)

    def _eager_search(self, step: Callable[..., Any]) -> Callable[..., Tensor]:
        def search(x: Tensor, y: Tensor, keys: Tensor, eps: Tensor, length: Tensor) -> Tensor:
            given = {"keys": keys, "eps": eps, "length": length, "ball": self.ball, "step": step}
            return self.attack.search(self.model, x, y, **given).x_adv

        return search

    def accelerate(self, runtime: Runtime) -> None:
        if self.attack.mode == "train":  # batch norm writes its statistics, which a traced gradient may not do
            return
        self._search = self._eager_search(runtime.compiled(ascent_step, fullgraph=True, dynamic=False))
        if runtime.captures:
            self._search = Captured(self._search)

    def sizes(self, keys: Tensor, epoch: float) -> tuple[Tensor, Tensor]:
        """Radius and step length for the images of these keys."""
        return self.warmup.sizes(self.attack, epoch, keys.device)

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        if self.warmup.factor(epoch) == 0:
            return x.clone()
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        with preserve_state(self.model, mode=self.attack.mode):
            return self._search(x, y, keys, *self.sizes(keys, epoch))

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf
    ) -> dict[str, Tensor]:
        """What an objective needs before the one call that gradients flow through: the attacked batch."""
        return {"x_adv": self(x, y, keys=keys, epoch=epoch)}
