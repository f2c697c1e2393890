"""Whether an exported model is the model: its logits on the same images, beside those of the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.base.progress import Meter
from hardtack.models.classifier import evaluating

Predict = Callable[[Tensor], Tensor]
_AT_ONCE = 32
# Runtimes add the same numbers in another order. Logits may differ by so much, relative to the largest one.
MOST_DIFFERENCE = 1e-2


@dataclass(frozen=True)
class ImageSet:
    """Images (N×C×H×W in [0,1]) on which two models are compared."""

    name: str
    x: Tensor


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The two models on one set of images.

    same                 images with the same prediction
    ties                 images with another prediction whose two largest logits are closer than the rounding there
    largest_difference   of a logit
    """

    images: str
    n: int
    same: int
    ties: int
    largest_difference: float

    def __str__(self) -> str:
        said = "same predictions" if self.same == self.n else f"same predictions on {self.same}"
        if self.ties:
            said += f", and on {self.ties} the two largest logits are equal up to rounding"
        return f"{self.n} {self.images}: {said}; logits differ by at most {self.largest_difference:.1e}"


class Reference:
    """The logits of the model itself on every set of images, with which exported ones are compared."""

    def __init__(self, model: nn.Module, sets: Sequence[ImageSet]) -> None:
        self.sets = sets
        try:
            with evaluating(model), torch.no_grad():
                self.logits = _logits(model, sets, "the model")
        except UserError:
            raise
        except Exception as error:  # whatever a module of somebody's raises for images that do not fit
            shape = "×".join(map(str, sets[0].x.shape[1:]))
            raise UserError(
                f"the model cannot take images of {shape} ({type(error).__name__}: {shorten(error)})"
            ) from error

    def compare(self, predict: Predict, what: str) -> list[Comparison]:
        """Compare on every set; a UserError names what differs. `what`: the exported model, for messages."""
        comparisons = []
        for images, ours, theirs in zip(self.sets, self.logits, _logits(predict, self.sets, what), strict=True):
            comparison = _compare(images, ours, theirs, what)
            if comparison.same + comparison.ties < comparison.n:
                raise UserError(
                    f"{what} was not kept: it predicts other classes than the model on "
                    f"{comparison.n - comparison.same - comparison.ties} of {comparison.n} {images.name} (logits "
                    f"differ by up to {comparison.largest_difference:.2g})"
                )
            comparisons.append(comparison)
        return comparisons


def _compare(images: ImageSet, ours: Tensor, theirs: Tensor, what: str) -> Comparison:
    if ours.shape != theirs.shape:
        raise UserError(f"{what} was not kept: it returns {tuple(theirs.shape)}, the model {tuple(ours.shape)}")
    difference = (ours - theirs).abs().amax(dim=1)
    scale = ours.abs().max().clamp_min(1.0)
    if not theirs.isfinite().all() or difference.max() > MOST_DIFFERENCE * scale:
        raise UserError(
            f"{what} was not kept: on {len(ours)} {images.name} its logits differ from the model's by up to "
            f"{difference.max().item():.2g}, at logits up to {scale.item():.2g}"
        )
    same = ours.argmax(dim=1) == theirs.argmax(dim=1)
    two = ours.topk(2, dim=1).values
    ties = ~same & (two[:, 0] - two[:, 1] <= 2 * difference)
    return Comparison(
        images=images.name, n=len(ours), same=int(same.sum()), ties=int(ties.sum()),
        largest_difference=float(difference.max()),
    )  # fmt: skip


def _logits(predict: Predict, sets: Sequence[ImageSet], what: str) -> list[Tensor]:
    parts = [images.x.split(_AT_ONCE) for images in sets]
    logits = []
    with Meter(f"images through {what}", total=sum(map(len, parts))) as meter:
        for split in parts:
            found = []
            for part in split:
                found.append(predict(part).float())
                meter.advance(len(part))
            logits.append(torch.cat(found))
    return logits


def from_numpy(run: Callable[[np.ndarray], Any]) -> Predict:
    """A function of arrays as one of tensors."""
    return lambda x: torch.from_numpy(np.asarray(run(x.numpy())))
