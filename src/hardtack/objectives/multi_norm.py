"""Training against several attacks at once (Tramèr and Boneh 2019): the strongest, all of them, or one at random.

max      each image is trained on as the attack left it that raised the objective's loss most
average  all attacked batches are trained on, one after the other in one large batch
random   each image draws one of the threats; all climb together, so that it costs no more than one attack
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hardtack.attacks import Ascent, get_loss
from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.losses import Loss
from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.objectives.adversary import Adversary, Warmup, for_training
from hardtack.threats import Ball

Combine = Literal["max", "average", "random"]

_DRAW = 0x6E6F726D  # keeps the draw of a norm apart from what else an image's key decides


class Several:
    """Attacks of which the strongest counts, or all of them; `loss` is what the objective minimises."""

    def __init__(
        self, model: nn.Module, attacks: Sequence[Ascent], warmup: Warmup, *, combine: Combine, loss: str
    ) -> None:
        self.model, self.combine, self.warmup = model, combine, warmup
        self.players = [Adversary(model, attack, warmup) for attack in attacks]
        self._loss, self._needs_clean = get_loss(loss), loss == "kl"
        self._severity: Callable[..., Tensor] = severity

    def accelerate(self, runtime: Runtime) -> None:
        for player in self.players:
            player.accelerate(runtime)
        self._severity = runtime.compiled(severity, fullgraph=True, dynamic=False)

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        found = [player(x, y, keys=keys, epoch=epoch) for player in self.players]
        return torch.cat(found) if self.combine == "average" else self._strongest(found, x, y)

    def _strongest(self, found: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        labels = y.argmax(dim=1) if y.is_floating_point() else y
        with preserve_state(self.model), torch.no_grad():
            clean = self.model(x).float() if self._needs_clean else None
            losses = [self._severity(self.model, x_adv, labels, clean, loss=self._loss) for x_adv in found]
        worst = torch.stack(losses).argmax(dim=0)
        return torch.stack(found)[worst, torch.arange(len(x), device=x.device)]

    def prepare(self, x: Tensor, y: Tensor, **when: Any) -> dict[str, Tensor]:
        """The attacked batch; with `average` as many batches as there are attacks, one behind the other."""
        return {"x_adv": self(x, y, **when)}


def severity(model: nn.Module, x_adv: Tensor, y: Tensor, clean: Tensor | None, *, loss: Loss) -> Tensor:
    """The loss of each image."""
    return loss(model(x_adv).float(), y, clean)


class Drawn(Adversary):
    """One search in which every image has the threat that its key drew."""

    def __init__(self, model: nn.Module, attacks: Sequence[Ascent], warmup: Warmup) -> None:
        super().__init__(model, attacks[0], warmup)
        self.attacks = attacks = [for_training(attack) for attack in attacks]
        self.ball = Mixed([attack.ball for attack in attacks])
        rest = {"threat": attacks[0].threat, "step": None, "relative_step": None, "dense": False}
        alike = {dataclasses.replace(attack, **rest) for attack in attacks}  # type: ignore[arg-type]
        if len(alike) > 1:
            raise UserError(
                "combine: random is one search for all images, so its attacks may differ in threat, step and "
                "relative_step alone; use combine: max or average, or give them the same steps, loss and start"
            )

    def sizes(self, keys: Tensor, epoch: float) -> tuple[Tensor, Tensor]:
        """A row for each attack, zero for the images that drew another: K×N."""
        draw = randomness.integers(randomness.make_keys(keys, _DRAW), len(self.attacks))
        mine = draw == torch.arange(len(self.attacks), device=keys.device)[:, None]
        each = [self.warmup.sizes(attack, epoch, keys.device) for attack in self.attacks]
        radii, lengths = (torch.stack(column)[:, None] * mine for column in zip(*each, strict=True))
        return radii, lengths


class Mixed:
    """Balls of which every image has one: radii and lengths have a row for each, zero where an image has another."""

    def __init__(self, balls: Sequence[Ball]) -> None:
        self.balls = tuple(balls)

    def random_point(self, x: Tensor, eps: Tensor, keys: Tensor) -> Tensor:
        return _own(x, eps, [ball.random_point(x, row, keys) for ball, row in zip(self.balls, eps, strict=True)])

    def steepest_step(self, gradient: Tensor, x_adv: Tensor, length: Tensor) -> Tensor:
        steps = [ball.steepest_step(gradient, x_adv, row) for ball, row in zip(self.balls, length, strict=True)]
        return _own(torch.zeros_like(gradient), length, steps)

    def project(self, z: Tensor, x: Tensor, eps: Tensor) -> Tensor:
        return _own(x, eps, [ball.project(z, x, row) for ball, row in zip(self.balls, eps, strict=True)])


def _own(result: Tensor, sizes: Tensor, each: list[Tensor]) -> Tensor:
    for row, one in zip(sizes, each, strict=True):
        result = torch.where((row > 0)[:, None, None, None], one, result)
    return result
