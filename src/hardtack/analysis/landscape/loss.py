"""The loss of a model on the images, clean or attacked, for the analyses landscape and curvature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.analysis.adversary import blind_notes, moved
from hardtack.analysis.analysis import AnalysisContext
from hardtack.analysis.image_cache import Batch, ImageCache
from hardtack.evaluation.sanity import check_logits
from hardtack.models.parts import NORMS

_ESTIMATED_WITH = 100  # fixed batch size for estimating statistics, because they depend on it


class Losses:
    """Cross-entropy of each image, clean or attacked."""

    def __init__(self, context: AnalysisContext, attack: Any, batch_size: int | None) -> None:
        self.images = context.cached_images(batch_size)
        self.attack, self.context = attack, context
        with torch.no_grad():
            for x, y, _ in self.images:
                check_logits(context.model(x).float(), y)

    def attacked(self, model: nn.Module) -> Iterator[Batch]:
        """The images attacked on this model; without an attack the clean images."""
        for x, y, index in self.images:
            yield x if self.attack is None else moved(self.attack, model, x, y, index, self.context.seed), y, index

    def crafted(self, model: nn.Module) -> ImageCache:
        """The attacked images of all batches, kept in memory."""
        if self.attack is None:
            return self.images
        return ImageCache(self.attacked(model), self.images.device, self.images.size)

    def blind_notes(self) -> list[str]:
        return [] if self.attack is None else blind_notes(self.attack, self.context)

    @torch.no_grad()
    def each(self, model: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
        """The loss of each image (float64; NaN becomes infinity), and whether it is classified correctly."""
        losses, right = [], []
        for x, y, _ in batches:
            logits = model(x).float().double()
            losses.append(F.cross_entropy(logits, y, reduction="none").nan_to_num(nan=torch.inf))
            right.append(logits.argmax(dim=1) == y)
        return torch.cat(losses), torch.cat(right)


def batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """The batch norm layers with running statistics."""
    kept = (module for module in model.modules() if isinstance(module, NORMS))
    return [norm for norm in kept if isinstance(norm, nn.modules.batchnorm._NormBase) and norm.track_running_stats]


@torch.no_grad()
def estimate_statistics(model: nn.Module, images: ImageCache) -> None:
    """Set the running statistics of the model's batch norms to those of these images."""
    norms = batch_norms(model)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the cumulative mean over the batches
        norm.train()
    for part in _regrouped((x for x, _, _ in images), _ESTIMATED_WITH):
        model(part)
    for norm in norms:
        norm.eval()


def _regrouped(parts: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The same rows in batches of `size`; the last batch may be smaller."""
    waiting: list[Tensor] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= size:
            *full, rest = torch.cat(waiting).split(size)
            waiting = [rest]
            if len(rest) == size:
                full, waiting = [*full, rest], []
            yield from full
    if waiting:
        yield torch.cat(waiting)
