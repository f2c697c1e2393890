"""The occluder of RSPC as a player: it maximises what the model minimises, with an optimiser of its own.

Its gradient comes from the model's backward pass, with the sign reversed. The published code does not undo the loss
scale of mixed precision: the gradient is about 65536 times too large, so that nearly every entry is clipped to ±1 and
the whole to norm 5. The result is a step of constant length, which `normalised` asks for directly.

With the published gradient the masks of all images become alike: the alignment has its minimum at the clean image, so
that patches which are not hidden have no gradient, and those which are hidden are pushed further down, however little
hiding them does (docs/train.md). `credit`, `explore`, `variety`, `temperature` and `per_image` change that gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks.patches import pick
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.models import Occluder
from hardtack.objectives.rspc_credit import credited

_LOSS_SCALE = 2.0**16
_WHETHER, _WHICH = 4, 5  # what the random numbers of an image are for, beside those of rspc.py


@dataclass(frozen=True, kw_only=True)
class OccluderConfig:
    """How the occluder is updated: SGD with Nesterov momentum and a constant learning rate.

    lr             learning rate of the occluder, constant
    momentum       decay of Nesterov's momentum
    weight_decay   decay of its weights
    gradient       normalised: to norm `norm`; clipped: to at most that norm, which at true scale hardly moves the
                   occluder; scaled: multiplied by 65536, the first loss scale of mixed precision, and then clipped, as
                   published
    norm           the norm that its gradient is brought to
    credit         whose scores the gradient moves. all: those of all patches, as published; hidden: of the hidden ones,
                   each by how much more hiding it does than the mean of all that are hidden in the batch
    explore        share of the images whose patches are drawn at random while training, so that others are tried, too
    variety        how strongly patches that are hidden in more images of a batch than others are pushed back
    temperature    the gradient fades with the distance of a score from the threshold, within this many standard
                   deviations of the image's scores; null: it does not, as published
    per_image      every image's gradient has the same norm
    seed           of its initial weights
    """

    lr: Number = 1e-4
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    gradient: Literal["normalised", "clipped", "scaled"] = "normalised"
    norm: Annotated[float, Field(gt=0)] = 5.0
    credit: Literal["all", "hidden"] = "all"
    explore: Annotated[float, Field(ge=0, le=1)] = 0.0
    variety: Annotated[float, Field(ge=0)] = 0.0
    temperature: Annotated[float, Field(gt=0)] | None = None
    per_image: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.lr < 0:
            raise UserError(f"lr must not be negative, found {self.lr}")


class OccluderPlayer(nn.Module):
    """An occluder with its momentum, all in parameters and buffers, so that a continued run keeps them."""

    gradient_norm: Tensor

    def __init__(self, occluder: Occluder, config: OccluderConfig) -> None:
        super().__init__()
        self.config = config
        self.occluder = occluder
        for name, parameter in occluder.named_parameters():
            self.register_buffer(_velocity(name), torch.zeros_like(parameter))
        self.register_buffer("gradient_norm", torch.zeros(()))

    def forward(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        """1 where a patch is occluded, N×rows×columns; with keys, of some images at random (`explore`).

        The backward pass reverses the sign of the gradient.
        """
        scores = self.occluder.scores(x)
        bits = self.occluder.choose(scores)
        mask: Tensor = _Reversed.apply(bits, self._explored(bits, keys), scores.detach(), self.config)
        return mask

    def _explored(self, bits: Tensor, keys: Tensor | None) -> Tensor:
        """The masks, those of a share of the images drawn at random."""
        if keys is None or not self.config.explore:
            return bits.detach()
        drawn = pick(randomness.uniform(randomness.make_keys(keys, _WHICH), tuple(bits.shape[1:])), self.occluder.count)
        exploring = randomness.uniform(randomness.make_keys(keys, _WHETHER), (1, 1)) < self.config.explore
        return torch.where(exploring, drawn.to(bits.dtype), bits.detach())

    @torch.no_grad()
    def step(self) -> None:
        """Update the occluder by the gradients of its parameters.

        Entries that are not finite count as 0. The published code clips before it replaces them, so one of them makes
        the whole gradient 0: `clipped` and `scaled` do the same.
        """
        config = self.config
        named = list(self.occluder.named_parameters())
        gradients = [p.grad for _, p in named if p.grad is not None]
        if not gradients:
            return
        if config.gradient == "normalised":
            gradients = [_finite(gradient) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]))
        self.gradient_norm.copy_(_finite(norm))
        factor = config.norm / norm.clamp_min(1e-30)
        if config.gradient != "normalised":
            factor = factor.clamp_max(1.0)
        for (name, parameter), gradient in zip(named, gradients, strict=True):
            gradient = _finite(gradient * factor) + config.weight_decay * parameter
            velocity = self.get_buffer(_velocity(name))
            velocity.mul_(config.momentum).add_(gradient)
            parameter.sub_(config.lr * (gradient + config.momentum * velocity))


class _Reversed(torch.autograd.Function):
    """The mask that is played; backwards, minus its gradient as it is credited to the occluder's own choice."""

    @staticmethod
    def forward(ctx: Any, bits: Tensor, mask: Tensor, scores: Tensor, config: OccluderConfig) -> Tensor:
        ctx.save_for_backward(mask, scores)
        ctx.config = config
        return mask.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        mask, scores = ctx.saved_tensors
        config: OccluderConfig = ctx.config
        gradient = credited(
            gradients[0].flatten(1), mask.flatten(1), scores, hidden_only=config.credit == "hidden",
            variety=config.variety, temperature=config.temperature, per_image=config.per_image,
        )  # fmt: skip
        scale = _LOSS_SCALE if config.gradient == "scaled" else 1.0
        return -scale * gradient.reshape(mask.shape), None, None, None


def _finite(values: Tensor) -> Tensor:
    return torch.nan_to_num(values, 0.0, 0.0, 0.0)


def _velocity(name: str) -> str:
    return f"velocity_{name.replace('.', '_')}"
