"""Patch-Fool: change one patch, or a few, so that the transformer attends to it and misclassifies (Fu et al., 2022).

    choose patches by the attention they receive → repeat: gradient of the loss, plus a little of the gradient
    that draws attention to them → Adam step on their pixels → project to ball ∩ box

Departures from the published code: the best iterate is kept, not the last; the chosen patches all draw
attention, not just the first; projections are the threat's own. In l2 and l1, and for the pixels of a sparse
attack, Adam's second moment is one for the whole image: each pixel's own would make all gradients equally
large, and the choice of pixels would hardly move. `pcgrad="sum"` treats the attention of all blocks as one loss,
which costs two backward passes per step instead of one per block.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hardtack.attacks import patches as parts
from hardtack.attacks.contract import Attack
from hardtack.attacks.losses import cross_entropy
from hardtack.attacks.outcome import AttackOutcome, Step, better, nothing_yet
from hardtack.attacks.patches import Tokens, cover, per_patch, pick
from hardtack.attacks.preserve_state import preserve_state
from hardtack.attacks.targets import TargetChoice, aim
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models import Taps, tap
from hardtack.models.tokens import own_patch_size, usual_patch_size
from hardtack.threats import Threat

_BLOCK = 4  # the paper's, counted from 0
_PIXEL_RATE = 1e-2  # Adam's, on the scores by which a sparse attack picks its pixels
_PIXELS_SETTLE = 0.8  # … which stay as they are after this share of the steps


@attacks.register("patch_fool", help="a few patches, chosen by attention, repainted until the model errs")
@dataclass(frozen=True, kw_only=True)
class PatchFool(Attack):
    """Patch-Fool. A threat smaller than the whole box makes the attack mild.

    threat             how far a pixel of the patches may move; by default it may take any value
    patches            number of patches that are repainted; null: pixels anywhere in the image (needs `pixels`)
    patch_size         side of a patch in pixels; null: the model's own
    pixels             most pixels that change, inside the patches or, with patches=null, anywhere; null: all of them
    choose             what patches are chosen by: the attention they receive, saliency (gradient of the loss), or at
                       random; null: attention, or saliency with a warning where attention cannot be read
    block              number of the block whose attention chooses, negative from the end; null: the fifth, or the last
                       of fewer
    lr                 step size of Adam in multiples of the range that the threat leaves a pixel (0.05 is the paper's
                       0.22 in units of ImageNet's standard deviation)
    decay              factor on lr every decay_every steps
    decay_every        steps between two such multiplications
    attention_weight   weight of the attention that the patches draw, against the loss
    pcgrad             sum: the attention of all blocks is one loss, two backward passes for each step; block: one for
                       each block, as published

    Paper: Fu et al. 2022, Patch-Fool: Are Vision Transformers Always Robust Against Adversarial Perturbations?
        (arXiv:2203.08392)
    """

    threat: Threat = parts.WHOLE_BOX
    patches: int | None = 1
    patch_size: int | None = None
    pixels: int | None = None
    choose: Literal["attention", "saliency", "random"] | None = None
    block: int | None = None
    steps: int = 250
    lr: Number = 0.05
    decay: Number = 0.95
    decay_every: int = 10
    attention_weight: Number = 0.002
    pcgrad: Literal["sum", "block"] = "sum"
    target: TargetChoice | None = None
    mode: Literal["eval", "train"] = "eval"
    seed: int = 0

    uses_logit_gradient = False

    def __post_init__(self) -> None:
        check(self)
        for name in ("patches", "patch_size", "pixels", "steps", "decay_every"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UserError(f"{name} must be at least 1, found {count}")
        if not self.lr > 0 or not 0 < self.decay <= 1:
            raise UserError(f"lr must be positive and decay at most 1, found {self.lr} and {self.decay}")
        if not self.attention_weight >= 0:
            raise UserError(f"attention_weight must not be negative, found {self.attention_weight}")
        if self.patches is None and self.pixels is None:
            raise UserError("give patches, pixels or both: without either the whole image may change")
        if self.patches is None and self.choose is not None:
            raise UserError(f"choose={self.choose} chooses patches; with patches=None there are none to choose")

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
        """The loop alone, without host synchronisation; the caller has put the model into `preserve_state`.

        A `verdict` costs nothing, because the logits of every iterate are known.
        """
        if keys is None:
            keys = torch.arange(len(x), device=x.device)
        goal, sign = aim(model, x, y, keys, self.seed, target, self.target)
        keys = randomness.make_keys(keys, self.seed)
        free, size, blocks = self._territory(model, x, goal, keys)
        weights = [parts.token_weights(free, block) for block in blocks]
        area = x[0, 0].numel() if self.patches is None or size is None else self.patches * size**2
        # Adam turns a gradient almost into its sign, which is the way to go in linf but not in l2 and l1
        shared = None if self.threat.norm == "linf" else area * x.shape[1]
        rate = self.lr * self._range(x.shape[1] * min(area, self.pixels or area))

        # on the device once: a number would be copied there, and waited for, in every step
        eps = torch.full((), self.threat.radius, dtype=x.dtype, device=x.device)
        paint = torch.where(free, randomness.uniform(keys, tuple(x.shape[1:]), stream=1), x)
        paint = self.threat.project(paint, x, eps)
        scores = randomness.uniform(keys, tuple(free.shape[1:]), stream=2)
        paint_moments = (torch.zeros_like(paint), torch.zeros_like(paint))
        score_moments = (torch.zeros_like(scores), torch.zeros_like(scores))
        best = nothing_yet(x)
        with tap(model, features=False) if blocks else contextlib.nullcontext() as taps:
            for taken in range(self.steps):
                x_adv, used = self._image(x, paint, scores, free, eps)
                maps = None if taps is None else (taps, blocks, weights)
                at, gradient = self._gradient(model, x_adv, goal, sign, free, maps)
                best = better(best, x_adv, at, goal, sign, taken)
                step, paint_moments = _adam(gradient, paint_moments, taken, shared=shared)
                if self.pixels is not None and taken < _PIXELS_SETTLE * self.steps:
                    # d image / d mask is paint − x; the choice of the highest in between is passed straight through
                    slope = (gradient * (paint - x)).sum(dim=1, keepdim=True)
                    lift, score_moments = _adam(slope, score_moments, taken, shared=area)
                    scores = scores + _PIXEL_RATE * lift
                length = rate * self.decay ** (taken // self.decay_every)
                paint = (torch.where(used, x_adv, paint) + length * step).clamp(0, 1)
                if self.pixels is not None:  # pixels in waiting are painted too, as far as they might be used
                    paint = torch.where(used, paint, self.threat.project(torch.where(used, x, paint), x, eps))
        x_adv, _ = self._image(x, paint, scores, free, eps)
        with torch.no_grad():
            logits = model(x_adv).float()
        last = Step(x_adv, x_adv, sign * cross_entropy(logits, goal), logits, best.zero_gradient)
        return better(best, x_adv, last, goal, sign, self.steps)

    def settle(self, model: nn.Module, like: Tensor) -> tuple[PatchFool, str]:
        """The attack with the settings it takes from the model written out, and a note if attention cannot be read."""
        if self.patches is None:
            return self, ""
        with preserve_state(model, mode=self.mode):
            _, tokens, reason = parts.read_attention(model, like)
            return self._settled(model, like, tokens, reason)

    @property
    def limits(self) -> str:
        """What may change, in words: `1 patch of 8×8, chosen by attention`."""
        pixels = f"{self.pixels} pixel{'s' * (self.pixels > 1)}" if self.pixels is not None else ""
        if self.patches is None:
            return pixels
        return (f"{pixels} of " if pixels else "") + parts.in_words(self.patches, self.patch_size, self.choose)

    def allows(self, x_adv: Tensor, x: Tensor, model: nn.Module | None = None) -> Tensor:
        """One bool per image: it differs in at most the permitted numbers of patches and pixels.

        Where neither `patch_size` nor the model tells how large a patch is, any regular grid will do.
        """
        allowed = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if self.pixels is not None:
            allowed &= (x_adv != x).any(dim=1).flatten(1).sum(dim=1) <= self.pixels
        if self.patches is not None:
            most, size = self.patches, self.patch_size
            if size is None and model is not None:
                size = self._size(model, x)
            allowed &= parts.differs_in(x_adv, x, size, lambda cells: most)
        return allowed

    def _territory(
        self, model: nn.Module, x: Tensor, goal: Tensor, keys: Tensor
    ) -> tuple[Tensor, int | None, list[Tokens]]:
        """The pixels that may change (N×1×H×W), the size of a patch, the maps whose attention is to be drawn."""
        if self.patches is None:
            return torch.ones_like(x[:, :1], dtype=torch.bool), None, []
        maps, tokens, reason = parts.Maps([], [], "")
        if self.choose in (None, "attention") or self.attention_weight > 0:
            maps, tokens, reason = parts.read_attention(model, x)
        settled, note = self._settled(model, x, tokens, reason)
        if note:
            warnings.warn(f"patch_fool: {note}")
        size: int = settled.patch_size  # type: ignore[assignment]  # settled
        if settled.choose == "attention":
            read = tokens[min(_BLOCK, len(tokens) - 1) if self.block is None else self.block]
            scores = per_patch(parts.attention_received(maps[read.number], read, x), size)
        elif settled.choose == "saliency":
            scores = per_patch(_saliency(model, x, goal), size)
        else:
            scores = randomness.uniform(keys, parts.grid(x, size))
        # the paper's blocks: from the second up to the middle
        early = tokens[1 : max(2, len(tokens) // 2)] or tokens[:1]
        return cover(pick(scores, self.patches), size, x), size, early if settled.attention_weight > 0 else []

    def _settled(self, model: nn.Module, x: Tensor, tokens: list[Tokens], reason: str) -> tuple[PatchFool, str]:
        """`settle`, given the maps that were heard and the `reason` why none is between patches."""
        if reason and self.choose == "attention":
            raise UserError(f"choose=attention: {reason}; use choose=saliency or choose=random")
        choose, weight, note = self.choose or "attention", self.attention_weight, ""
        if reason and (self.choose is None or weight > 0):
            choose, weight = self.choose or "saliency", 0.0
            note = f"{reason}; patches are chosen {parts.CHOSEN[choose]} and no attention is drawn to them"
        depth = len(tokens)
        if choose == "attention" and self.block is not None and not -depth <= self.block < depth:
            raise UserError(
                f"block={self.block}: attention between patches can be read in {depth} blocks of this model, "
                f"0 to {depth - 1} or {-depth} to -1"
            )
        size = self._size(model, x)
        parts.grid(x, size, at_least=self.patches)
        return dataclasses.replace(self, patch_size=size, choose=choose, attention_weight=weight), note

    def _size(self, model: nn.Module, x: Tensor) -> int:
        size = self.patch_size or own_patch_size(model, x)
        if size is None:
            usual = usual_patch_size(x.shape[2:])
            message = "this model has no patches of its own; say how many pixels wide they are"
            raise UserError(f"{message}: patch_size={usual}")
        return size

    def _range(self, values: int) -> float:
        """How far apart two values of a pixel may lie when all that may change use the threat alike."""
        share = {"linf": 1.0, "l2": math.sqrt(values), "l1": values}[self.threat.norm]
        return min(1.0, 2 * self.threat.radius / share)

    def _image(self, x: Tensor, paint: Tensor, scores: Tensor, free: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        """`x` with paint on the free pixels, or on those of them with the highest scores; and which these are."""
        used = free if self.pixels is None else free & pick(scores.masked_fill(~free, -torch.inf), self.pixels)
        return self.threat.project(torch.where(used, paint, x), x, eps), used

    def _gradient(
        self,
        model: nn.Module,
        x_adv: Tensor,
        goal: Tensor,
        sign: float,
        free: Tensor,
        maps: tuple[Taps, list[Tokens], list[Tensor]] | None,
    ) -> tuple[Step, Tensor]:
        """What the model says of `x_adv`, and the direction in which its free pixels should move."""
        x_adv = x_adv.detach().requires_grad_()
        logits = model(x_adv).float()
        value = sign * cross_entropy(logits, goal)
        slope = torch.where(free, _gradient_of(value, x_adv), 0)
        zero = ~(slope.flatten(1).abs().amax(dim=1) > 0)  # NaN included: it points nowhere either
        total = slope = slope.nan_to_num(0.0, 0.0, 0.0)
        if maps is not None:
            taps, blocks, weights = maps
            drawn = [parts.log_attention(taps.attention[b.number], w) for b, w in zip(blocks, weights, strict=True)]
            for attention in drawn if self.pcgrad == "block" else [torch.stack(drawn).sum(dim=0)]:
                pull = torch.where(free, _gradient_of(attention, x_adv), 0).nan_to_num(0.0, 0.0, 0.0)
                total = total + self.attention_weight * _without_conflict(pull, slope)
        x_adv = x_adv.detach()
        return Step(x_adv, x_adv, value.detach(), logits.detach(), zero), total


def _gradient_of(values: Tensor, x: Tensor) -> Tensor:
    """d values / dx, image by image; zero where the model cuts the path to its input. The graph stays."""
    if not values.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(values.sum(), x, retain_graph=True, materialize_grads=True)[0]


def _saliency(model: nn.Module, x: Tensor, goal: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    slope = _gradient_of(cross_entropy(model(x).float(), goal), x)
    return slope.nan_to_num(0.0, 0.0, 0.0).abs().sum(dim=1, keepdim=True)


def _without_conflict(pull: Tensor, slope: Tensor) -> Tensor:
    """`pull` less its part against `slope`, where it has one (PCGrad: Yu et al. 2020)."""
    against = (pull * slope).sum(dim=(1, 2, 3), keepdim=True).clamp(max=0)
    return pull - slope * (against / slope.square().sum(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30))


def _adam(
    slope: Tensor, moments: tuple[Tensor, Tensor], taken: int, *, shared: int | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Adam's direction of ascent (Kingma and Ba 2015), of length about 1 in every value, and its new moments.

    The second moment is each value's own or, `shared` by so many values of an image, their common mean.
    """
    square = slope**2 if shared is None else slope.square().sum(dim=(1, 2, 3), keepdim=True) / shared
    first, second = 0.9 * moments[0] + 0.1 * slope, 0.999 * moments[1] + 0.001 * square
    mean, spread = first / (1 - 0.9 ** (taken + 1)), (second / (1 - 0.999 ** (taken + 1))).sqrt()
    return mean / (spread + 1e-20), (first, second)  # not 1e-8: gradients of a sure model are smaller
