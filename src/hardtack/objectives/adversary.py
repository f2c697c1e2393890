"""The inner player of adversarial training: an attack on the bare model, with a radius that may grow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent, ascent_step, untouched
from hardtack.capture import Captured
from hardtack.errors import UserError
from hardtack.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """Radius of the training attack over the first `epochs`: a fraction of eps that rises to 1.

    `hold: epoch` keeps it constant inside an epoch, so that the first epoch is clean (the XCiT recipe);
    `hold: step` lets it rise at every step.
    """

    epochs: Annotated[float, Field(ge=0)] = 0.0
    shape: Literal["linear", "sine"] = "linear"
    hold: Literal["step", "epoch"] = "step"

    def factor(self, epoch: float) -> float:
        if epoch >= self.epochs:
            return 1.0
        progress = (math.floor(epoch) if self.hold == "epoch" else epoch) / self.epochs
        return math.sin(progress * math.pi / 2) if self.shape == "sine" else progress


class Adversary:
    """Calls the attack on the model; `accelerate` makes it one compiled step replayed as a CUDA graph."""

    def __init__(self, model: nn.Module, attack: Ascent, warmup: Warmup) -> None:
        if not isinstance(attack, Ascent):
            found = type(attack).__name__
            raise UserError(f"training needs an ascent attack such as fgsm or pgd, found {found}")
        self.model = model
        self.attack = dataclasses.replace(attack, keep=attack.keep or "last")
        self.warmup = warmup
        self._search: Callable[..., Tensor] = self._eager_search(ascent_step)

    def _eager_search(self, step: Callable[..., Any]) -> Callable[..., Tensor]:
        def search(x: Tensor, y: Tensor, keys: Tensor, eps: Tensor) -> Tensor:
            return self.attack.search(self.model, x, y, keys=keys, eps=eps, step=step).x_adv

        return search

    def accelerate(self, runtime: Runtime) -> None:
        if self.attack.mode == "train":  # batch norm writes its statistics, which a traced gradient may not do
            return
        self._search = self._eager_search(runtime.compiled(ascent_step, fullgraph=True, dynamic=False))
        if runtime.captures:
            self._search = Captured(self._search)

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        eps = torch.full((), self.attack.threat.radius * self.warmup.factor(epoch), device=x.device)
        with untouched(self.model, mode=self.attack.mode):
            return self._search(x, y, keys, eps)

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf
    ) -> dict[str, Tensor]:
        """What an objective needs before the one call that gradients flow through: the attacked batch."""
        return {"x_adv": self(x, y, keys=keys, epoch=epoch)}
