"""How many of a network's weights hardly count: the share that is below a hundredth of the largest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from hardtack.analysis.analysis import Arrays, Conclusion, Scene, Score, Work
from hardtack.registry import analyses


@analyses.register("sparsity", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """Share of weights below `threshold` times the largest, of the whole network and of each of its tensors."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.01

    def begin(self, scene: Scene) -> Work:
        return _Sparsity(scene.model, self.threshold)


class _Sparsity:
    """A row for each weight tensor."""

    at_once = 1

    def __init__(self, model: nn.Module, threshold: float) -> None:
        self.weights, self.threshold = list(weight_tensors(model)), threshold
        self.largest = max((float(weight.abs().max()) for _, weight in self.weights), default=0.0)

    @property
    def length(self) -> int:
        return len(self.weights)

    def rows(self, start: int, stop: int) -> Arrays:
        found = [weight.detach().abs().flatten() for _, weight in self.weights[start:stop]]
        return {
            "count": np.array([len(weight) for weight in found]),
            "below_global": np.array([int((weight < self.threshold * self.largest).sum()) for weight in found]),
            "below_own": np.array([int((weight < self.threshold * weight.max()).sum()) for weight in found]),
        }

    def conclude(self, arrays: Arrays) -> Conclusion:
        total = int(arrays["count"].sum())
        scores = [
            Score(metric="sparsity", value=float(arrays[f"below_{kind}"].sum() / total), n=0, column=kind)
            for kind in ("global", "own")
        ]
        return Conclusion(scores=scores, facts={"names": [name for name, _ in self.weights], "largest": self.largest})


def weight_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Matrices and kernels: no biases, norms or tokens."""
    for prefix, module in model.named_modules():
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
            yield f"{prefix}.weight", module.weight
