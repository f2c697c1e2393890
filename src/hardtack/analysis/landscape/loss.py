"""The loss of a model on the scene's images, clean or attacked: what landscapes and curvatures are those of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.analysis.adversary import moved
from hardtack.analysis.analysis import Scene
from hardtack.evaluation.sanity import check_logits
from hardtack.evaluation.trials import default_batch
from hardtack.models.parts import NORMS

_ESTIMATED_WITH = 100  # images at once when statistics are estimated: they would depend on any other batch size


class Losses:
    """Cross-entropy of each image. The images are read once and stay on the device."""

    def __init__(self, scene: Scene, attack: Any, batch_size: int | None) -> None:
        self.x, self.y, self.index = scene.images(0, scene.count)
        self.attack, self.seed = attack, scene.seed
        self.batch_size = batch_size or default_batch(scene.shape, scene.device.type)
        with torch.no_grad():
            for i in self.spans():
                check_logits(scene.model(self.x[i]).float(), self.y[i])

    def spans(self) -> Iterator[slice]:
        for start in range(0, len(self.x), self.batch_size):
            yield slice(start, start + self.batch_size)

    def attacked(self, model: nn.Module) -> Tensor:
        """The images as the attack leaves them against this model; clean ones without an attack."""
        if self.attack is None:
            return self.x
        found = [moved(self.attack, model, self.x[i], self.y[i], self.index[i], self.seed) for i in self.spans()]
        return torch.cat(found)

    @torch.no_grad()
    def each(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of each image (float64; infinite where it is no number), and whether it is classified right."""
        logits = torch.cat([model(x[i]).float() for i in self.spans()]).double()
        losses = F.cross_entropy(logits, self.y, reduction="none").nan_to_num(nan=torch.inf)
        return losses, logits.argmax(dim=1) == self.y

    def mean(self, model: nn.Module, x: Tensor, i: slice) -> Tensor:
        """The part that these images have in the mean loss over all, with its gradient."""
        return F.cross_entropy(model(x[i]).float(), self.y[i], reduction="sum") / len(self.x)


def batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """Those that keep statistics of the images they were trained on."""
    kept = (module for module in model.modules() if isinstance(module, NORMS))
    return [norm for norm in kept if isinstance(norm, nn.modules.batchnorm._NormBase) and norm.track_running_stats]


@torch.no_grad()
def estimate_statistics(model: nn.Module, x: Tensor) -> None:
    """Gives the batch norms of the model the statistics that they would have gathered on these images."""
    norms = batch_norms(model)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches
        norm.train()
    for part in x.split(_ESTIMATED_WITH):
        model(part)
    for norm in norms:
        norm.eval()
