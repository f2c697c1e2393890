"""Patches of the image covered at random, and the worst of several covers: no gradient, one pass per try.

The image is cut into square patches, of which each try covers a few with noise, black or the mean colour.
One try measures what random occlusion costs (Guo, Stutz and Schiele, "Improving robustness of vision
transformers by reducing sensitivity to patch corruptions", 2023, RSPC for short); the worst of many is a patch
attack that needs no gradient.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.losses import margin
from hardtack.attacks.outcome import AttackOutcome, Step, better, nothing_yet
from hardtack.attacks.patches import (
    WHOLE_BOX,
    cover,
    differs_in,
    grid,
    in_words,
    pick,
)
from hardtack.attacks.targets import TargetChoice, aim
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models.tokens import default_patch_size
from hardtack.threats import Threat


@attacks.register("occlusion", help="random patches covered with noise, the worst of several tries")
@dataclass(frozen=True, kw_only=True)
class Occlusion(Attack):
    """Cover some of the patches at random, and keep the worst of several tries.

    threat       how far the cover may move a pixel; by default any pixel may take any value
    share        share of the patches that are covered; null: 0.1, unless patches is given
    patches      number of patches that are covered, in place of share; null: share decides
    patch_size   side of a patch in pixels; null: the model's own (models/tokens.py), else 16 pixels from 128-pixel
                 images on, 8 from 64 on, 4 below
    tries        random covers of each image, of which the worst is kept
    fill         what covers: uniform noise, black (zero), or the image's mean colour

    Patches at the right and lower edge may be cut off. A `threat` smaller than the whole box draws the cover back
    towards the image. `broken_at` of the outcome counts the tries before the first success.

    Paper: Guo, Stutz and Schiele 2023, Improving Robustness of Vision Transformers by Reducing Sensitivity to Patch
        Corruptions (CVPR)
    """

    threat: Threat = WHOLE_BOX
    share: Number | None = None
    patches: int | None = None
    patch_size: int | None = None
    tries: int = 1
    fill: Literal["noise", "zero", "mean"] = "noise"
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    uses_logit_gradient = False

    def __post_init__(self) -> None:
        check(self)
        for name, count in (("tries", self.tries), ("patches", self.patches), ("patch_size", self.patch_size)):
            if count is not None and count < 1:
                raise UserError(f"{name} must be at least 1, found {count}")
        if self.share is not None and self.patches is not None:
            raise UserError("give share (of the patches) or patches (a number of them), not both")
        if self.share is not None and not 0 < self.share <= 1:
            raise UserError(f"share must lie above 0 and not above 1, found {self.share}")

    @torch.no_grad()
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
        """The tries alone, without host synchronisation; the caller has put the model into `preserve_state`.

        A `verdict` costs nothing, because the logits of every try are known.
        """
        if keys is None:
            keys = torch.arange(len(x), device=x.device)
        goal, sign = aim(model, x, y, keys, self.seed, target, self.target)
        size = self._size(model, x)
        rows, columns = grid(x, size, at_least=self.patches)
        count = self._count(rows * columns)
        # on the device once: a number would be copied there, and waited for, in every try
        eps = torch.full((), self.threat.radius, dtype=x.dtype, device=x.device)
        best = nothing_yet(x)
        for tried in range(self.tries):
            own = randomness.make_keys(keys, self.seed, tried)
            chosen = pick(randomness.uniform(own, (rows, columns)), count)
            covered = torch.where(cover(chosen, size, x), self._fill(x, own), x)
            x_adv = self.threat.project(covered, x, eps)
            logits = model(x_adv).float()
            at = Step(x_adv, x_adv, sign * margin(logits, goal), logits, best.zero_gradient)
            best = better(best, x_adv, at, goal, sign, tried)
        # no loss is maximised here, so there is no first loss that the best one would have to exceed
        return best._replace(first_loss=nothing_yet(x).first_loss)

    def settle(self, model: nn.Module, like: Tensor) -> tuple[Occlusion, str]:
        """The attack with the size and number of its patches written out."""
        size = self._size(model, like)
        rows, columns = grid(like, size, at_least=self.patches)
        return dataclasses.replace(self, patch_size=size, patches=self._count(rows * columns), share=None), ""

    @property
    def limits(self) -> str:
        """What may change, in words: `7 patches of 4×4, chosen at random`."""
        if self.patches is None:
            return f"{100 * (0.1 if self.share is None else self.share):g}% of the patches, chosen at random"
        return in_words(self.patches, self.patch_size, "random")

    def allows(self, x_adv: Tensor, x: Tensor, model: nn.Module | None = None) -> Tensor:
        """One bool per image: it differs in at most the permitted number of patches.

        Where neither `patch_size` nor the model tells how large a patch is, any regular grid will do.
        """
        size = self.patch_size if model is None else self._size(model, x)
        return differs_in(x_adv, x, size, self._count)

    def _size(self, model: nn.Module, x: Tensor) -> int:
        return self.patch_size or default_patch_size(model, x)

    def _count(self, cells: int) -> int:
        """How many of `cells` are covered: those up to the quantile `share` of their scores, as RSPC has it."""
        share = 0.1 if self.share is None else self.share
        return self.patches or math.floor(share * (cells - 1) + 1e-9) + 1

    def _fill(self, x: Tensor, keys: Tensor) -> Tensor:
        if self.fill == "noise":
            return randomness.uniform(keys, tuple(x.shape[1:]), stream=1)
        return torch.zeros_like(x) if self.fill == "zero" else x.mean(dim=(2, 3), keepdim=True)
