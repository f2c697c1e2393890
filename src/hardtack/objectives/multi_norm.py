"""Training against several attacks at once (Tramèr and Boneh 2019): the strongest, all of them, or one at random.

max      trains on each image as the attack changed it that raised the objective's loss most
average  trains on all attacked batches, concatenated to one large batch
random   draws one of the threats for each image; one search attacks all images, so that it costs one attack
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hardtack.attacks import Ascent, Mode, get_loss, preserve_state
from hardtack.attacks.losses import Loss
from hardtack.base import randomness
from hardtack.base.capture import Captured
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models.fast_layers import FastLayers
from hardtack.objectives.adversary import Adversary, Warmup, training_attack
from hardtack.threats import Ball

Combine = Literal["max", "average", "random"]

_DRAW = 0x6E6F726D  # separates the draw of a threat from other random numbers of the image


class CombinedAdversary:
    """Several attacks, of which training uses the strongest for each image, or all. `loss` measures the strength."""

    def __init__(
        self, model: nn.Module, attacks: Sequence[Ascent], warmup: Warmup, *, combine: Combine, loss: str
    ) -> None:
        self.model, self.combine, self.warmup = model, combine, warmup
        self.adversaries = [Adversary(model, attack, warmup) for attack in attacks]
        self._loss, self._needs_clean = get_loss(loss), loss == "kl"
        self._image_losses: Callable[..., Tensor] = image_losses
        self._strongest: Callable[..., Tensor] = self._search_strongest

    @property
    def mode(self) -> Mode:
        return "train" if any(adversary.mode == "train" for adversary in self.adversaries) else "eval"

    def radius(self, epoch: float) -> dict[str, float]:
        return {"eps_share": self.warmup.factor(epoch)}

    def accelerate(self, runtime: Runtime) -> None:
        for adversary in self.adversaries:
            adversary.accelerate(runtime)
        self._image_losses = runtime.compiled(image_losses, fullgraph=True, dynamic=False)
        records = runtime.captures and not runtime.compile
        self._strongest = Captured(self._with_fast_layers(runtime)) if records else self._search_strongest

    def compile_blocks(self, runtime: Runtime) -> None:
        for adversary in self.adversaries:
            adversary.compile_blocks(runtime)

    def __call__(self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf) -> Tensor:
        """The attacked batch; with `average` one batch for each attack, concatenated."""
        keys = randomness.fresh_keys(len(x), x.device) if keys is None else keys  # the same for all attacks
        batches = [adversary(x, y, keys=keys, epoch=epoch) for adversary in self.adversaries]
        if self.combine == "average":
            return torch.cat(batches)
        with preserve_state(self.model), torch.no_grad():
            return self._strongest(x, y.argmax(dim=1) if y.is_floating_point() else y, *batches)

    def _search_strongest(self, x: Tensor, labels: Tensor, *batches: Tensor) -> Tensor:
        clean = self.model(x).float() if self._needs_clean else None
        losses = [self._image_losses(self.model, x_adv, labels, clean, loss=self._loss) for x_adv in batches]
        worst = torch.stack(losses).argmax(dim=0)
        return torch.stack(batches)[worst, torch.arange(len(x), device=x.device)]

    def _with_fast_layers(self, runtime: Runtime) -> Callable[..., Tensor]:
        def strongest(*inputs: Tensor) -> Tensor:
            with runtime.arithmetic(), FastLayers():
                return self._search_strongest(*inputs)

        return strongest


def image_losses(model: nn.Module, x_adv: Tensor, y: Tensor, clean: Tensor | None, *, loss: Loss) -> Tensor:
    """The loss of each image."""
    return loss(model(x_adv).float(), y, clean)


class RandomAdversary(Adversary):
    """One search in which every image has the threat that its key draws."""

    def __init__(self, model: nn.Module, attacks: Sequence[Ascent], warmup: Warmup) -> None:
        super().__init__(model, attacks[0], warmup)
        self.attacks = attacks = [training_attack(attack) for attack in attacks]
        self.ball = PerImageBall([attack.ball for attack in attacks])
        rest = {"threat": attacks[0].threat, "step": None, "relative_step": None, "dense": False}
        alike = {dataclasses.replace(attack, **rest) for attack in attacks}  # type: ignore[arg-type]
        if len(alike) > 1:
            raise UserError(
                "combine: random is one search for all images, so its attacks may differ only in threat, step and "
                "relative_step; use combine: max or average, or give them the same steps, loss and start"
            )

    def radius(self, epoch: float) -> dict[str, float]:
        return {"eps_share": self.warmup.factor(epoch)}

    def sizes(self, keys: Tensor, epoch: float) -> tuple[Tensor, Tensor]:
        """A row for each attack, zero for the images that drew another: K×N."""
        draw = randomness.integers(randomness.make_keys(keys, _DRAW), len(self.attacks))
        mine = draw == torch.arange(len(self.attacks), device=keys.device)[:, None]
        each = [self.warmup.sizes(attack, epoch, keys.device) for attack in self.attacks]
        radii, lengths = (torch.stack(column)[:, None] * mine for column in zip(*each, strict=True))
        return radii, lengths


class PerImageBall:
    """A ball for each image: radii and lengths are K×N, one row per ball, and zero where an image has another ball."""

    def __init__(self, balls: Sequence[Ball]) -> None:
        self.balls = tuple(balls)

    def random_point(self, x: Tensor, eps: Tensor, keys: Tensor) -> Tensor:
        return _select(x, eps, [ball.random_point(x, row, keys) for ball, row in zip(self.balls, eps, strict=True)])

    def steepest_step(self, gradient: Tensor, x_adv: Tensor, length: Tensor) -> Tensor:
        steps = [ball.steepest_step(gradient, x_adv, row) for ball, row in zip(self.balls, length, strict=True)]
        return _select(torch.zeros_like(gradient), length, steps)

    def project(self, z: Tensor, x: Tensor, eps: Tensor) -> Tensor:
        return _select(x, eps, [ball.project(z, x, row) for ball, row in zip(self.balls, eps, strict=True)])


def _select(result: Tensor, sizes: Tensor, per_ball: list[Tensor]) -> Tensor:
    """For each image the value of the ball whose size is positive; `result` where none is."""
    for row, value in zip(sizes, per_ball, strict=True):
        result = torch.where((row > 0)[:, None, None, None], value, result)
    return result
