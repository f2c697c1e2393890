"""Detectors: do gradients tell the truth about a model? A few images, a few hundred passes, in fp32.

An attack by gradients is worth as much as the gradient. Each detector asks one question about a sample of images, and
answers with a share or an agreement in [0,1], from which its flag is decided:

    agreement        does the margin change as the gradient predicts, along random directions and at two scales?
    descent          does a step along the gradient increase the loss more than random steps of the same size?
    unconstrained    does gradient ascent succeed at all when it may change every pixel at will? (Images for which the
                     sample has none of another class count as successes: the model may be nearly constant.)
    stability        is the prediction the same at random points of the ball?

`agreement` is measured at the images and at points that a few gradient steps lead to. The last two are indicators of
Pintor et al. (2022); their others are flags elsewhere: unavailable gradients (`zero_gradient`), silent success
(`silent_success`), incomplete optimisation (the audit repeats the search with more steps), and transfer failure
(`hardtack adapt` reports it).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hardtack.attacks.ascent import input_gradient
from hardtack.attacks.pool.search import success_margin
from hardtack.base import randomness
from hardtack.base.runtime import Runtime
from hardtack.evaluation.sanity import Flag, flag
from hardtack.threats import Threat

SAMPLE = 32  # images
_DIRECTIONS = 8
_SCALES = (0.5, 0.125)  # of the largest change of a pixel
_AGREEMENT = 0.5  # honest networks measure 0.6 (undefended, at a large radius) to 1.0 (adversarially trained)
_DESCENT = 0.5
_UNCONSTRAINED = 0.6
_STABILITY = 0.95
_TINY = 1e-30
_STREAM = 0x64657465


@dataclass(frozen=True)
class Findings:
    """The answers for one sample; see the module's documentation."""

    images: int
    agreement: float
    descent: float
    unconstrained: float
    stability: float

    def flags(self, threat: Threat) -> list[Flag]:
        """Red flags for every answer that honest models do not give."""
        return [item for item in (self._mismatch(threat), self._failure(), self._unstable(threat)) if item is not None]

    def _mismatch(self, threat: Threat) -> Flag | None:
        agrees, descends = self.agreement >= _AGREEMENT, self.descent >= _DESCENT
        if agrees and descends:
            return None
        parts = [] if agrees else [
            f"along random directions the margin does not change as the gradient predicts (agreement "
            f"{self.agreement:.2f}; honest models: above {_AGREEMENT})"
        ]  # fmt: skip
        if not descends:
            parts.append(f"only on {self.descent:.0%} a gradient step is better than random steps of the same size")
        message = f"on {self.images} images that remain correct at {threat}, " + ", and ".join(parts)
        return flag("red", "gradient_mismatch", f"{message}: the gradient is masked; {REMEDY}")

    def _failure(self) -> Flag | None:
        if self.unconstrained >= _UNCONSTRAINED:
            return None
        message = f"gradient ascent that may change every pixel at will breaks only {self.unconstrained:.0%}"
        return flag(
            "red", "unconstrained_failure", f"{message} of {self.images} images: attacks by gradients fail; {REMEDY}"
        )

    def _unstable(self, threat: Threat) -> Flag | None:
        if self.stability >= _STABILITY:
            return None
        message = f"at random points of the ball {threat}, {1 - self.stability:.0%} of {self.images} images that"
        message += " remain correct under attack are misclassified: the search failed on them"
        return flag("red", "unstable_predictions", f"{message}; {REMEDY}")


REMEDY = "try attack.smooth, attack.bpda or `hardtack adapt` (docs/trust.md)"


def examine(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    keys: Tensor,
    *,
    threat: Threat,
    runtime: Runtime,
    batch_size: int = SAMPLE,
) -> Findings:
    """The findings on images that are classified correctly. The caller has put the model into `preserve_state`."""
    size = min(batch_size, SAMPLE)
    try:
        with runtime.arithmetic("fp32"):
            batches = zip(x.split(size), y.split(size), keys.split(size), strict=True)
            answers = [_answers(_Probe(model, *batch, threat, batch_size)) for batch in batches]
    except torch.OutOfMemoryError:
        if batch_size == 1:
            raise
        torch.cuda.empty_cache()
        return examine(model, x, y, keys, threat=threat, runtime=runtime, batch_size=batch_size // 2)
    joined = {name: torch.cat([part[name] for part in answers], dim=-1) for name in answers[0]}
    joined["unconstrained"] |= (y[:, None] == y).all(dim=1)
    means = {name: value.float().mean(dim=-1) for name, value in joined.items()}
    return Findings(images=len(x), **{name: float(value.min()) for name, value in means.items()})


def _answers(probe: _Probe) -> dict[str, Tensor]:
    """What the detectors find, image by image. The first axis: points and scales, of which the least counts."""
    x = probe.x
    moved = probe.ascend(x, steps=4, size=probe.reach / 3, limit=probe.reach)
    agreements, descents = zip(*(probe.local(point) for point in (x, moved)), strict=True)
    free = probe.ascend(x, steps=12, size=0.15, limit=1.0, until_wrong=True)
    return {
        "agreement": torch.cat(agreements), "descent": torch.stack(descents),
        "unconstrained": (probe.margin(free) > 0)[None], "stability": probe.stability()[None],
    }  # fmt: skip


class _Probe:
    """A model, a sample of images, and the largest change of a pixel that attacks in the ball typically make."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, keys: Tensor, threat: Threat, batch_size: int) -> None:
        self.model, self.x, self.y, self.threat, self.batch_size = model, x, y, threat, batch_size
        self.keys = randomness.make_keys(keys, _STREAM)
        pixels = x[0].numel()
        typical = {"linf": threat.radius, "l2": 4 * threat.radius / pixels**0.5, "l1": 4 * threat.radius / pixels}
        self.reach = min(typical.get(threat.norm, 8 / 255), 0.5)
        self.directions = torch.stack([self._direction(number) for number in range(_DIRECTIONS)])

    @torch.no_grad()
    def margin(self, point: Tensor) -> Tensor:
        """At one point of every image, or at several (points × images × …), in batches of at most `batch_size`."""
        logits = torch.cat([self.model(part.clone()).float() for part in point.flatten(0, -4).split(self.batch_size)])
        y = self.y.expand(point.shape[:-3]).flatten()
        return success_margin(logits, y, y, reach=False).reshape(point.shape[:-3])

    def gradient(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Of the margin, and the margin itself."""

        def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            margin = success_margin(self.model(image).float(), self.y, self.y, reach=False)
            finite = torch.where(margin.isfinite(), margin, torch.zeros_like(margin))
            return finite.sum(), (margin.detach(), margin.detach())

        gradient, (margin, _) = input_gradient(objective, point)
        return gradient.nan_to_num(0.0, 0.0, 0.0), margin

    def _direction(self, number: int) -> Tensor:
        """±1 for every pixel, a function of the image."""
        return 1 - 2 * (randomness.uniform(self.keys, tuple(self.x.shape[1:]), number) < 0.5).to(self.x.dtype)

    def local(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Agreement (scales × images) and descent around one point of every image."""
        gradient, _ = self.gradient(point)
        agreements, random_margins = [], []
        for scale in _SCALES:
            step = scale * self.reach * self.directions
            ahead, behind = (point + step).clamp(0, 1), (point - step).clamp(0, 1)
            margins = self.margin(torch.stack([ahead, behind]))
            predicted = (gradient * (ahead - behind)).flatten(2).sum(dim=2)
            agreements.append(_agreement(predicted, (margins[0] - margins[1]).nan_to_num(0.0, 0.0, 0.0)))
            random_margins.append(margins.flatten(0, 1))
        size = _SCALES[0] * self.reach
        along = self.margin((point + size * gradient.sign()).clamp(0, 1))
        return torch.stack(agreements), along >= random_margins[0].amax(dim=0)

    def ascend(self, x: Tensor, *, steps: int, size: float, limit: float, until_wrong: bool = False) -> Tensor:
        """Steps along the sign of the gradient; with `until_wrong` an image stops where it is misclassified."""
        point = x
        for _ in range(steps):
            gradient, margin = self.gradient(point)
            moved = (x + (point + size * gradient.sign() - x).clamp(-limit, limit)).clamp(0, 1)
            keeps = (margin > 0).reshape(-1, 1, 1, 1) if until_wrong else torch.zeros(1, dtype=torch.bool)
            point = torch.where(keeps.to(x.device), point, moved)
        return point

    def stability(self) -> Tensor:
        """Which images stay correct at random points of the ball."""
        keys = [randomness.fold(self.keys, number) for number in range(4)]
        points = torch.stack([self.threat.random_point(self.x, key).clamp(0, 1) for key in keys])
        return ~(self.margin(points) > 0).any(dim=0)


def _agreement(predicted: Tensor, actual: Tensor) -> Tensor:
    """Lin's concordance of changes (directions × images), image by image: 1 only if sign and size agree."""
    both = (predicted * actual).mean(dim=0)
    sizes = (predicted**2).mean(dim=0) + (actual**2).mean(dim=0)
    return 2 * both / sizes.clamp_min(_TINY)
