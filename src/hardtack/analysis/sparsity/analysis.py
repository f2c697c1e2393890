"""Sparsity of a network: the share of small weights, and the distribution and norms of its weights.

A weight is small if its magnitude is below a hundredth of the largest one: of the whole network (`global`), or of its
own matrix or kernel (`own`). Both shares are computed for the whole network and for each kind of component. Paper 3
draws the histograms and finds that the most robust networks are the sparsest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.analysis.analysis import Analysis, AnalysisContext, Arrays, Conclusion, RowWork, Score
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.models.parts import KINDS, short_name

COMPONENTS = ("convolution", "qkv", "feed-forward", "other")
_FINE = 1 << 16  # bins of |w| from which the range of the histograms is chosen


@analyses.register("sparsity", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Sparsity(Analysis):
    """Share of small weights, histograms and norms of weights, by component.

    threshold   a weight counts as small below this share of the largest one
    bins        bins of the histograms, over a range that contains at least 99.9 % of the weights
    """

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.01
    bins: Annotated[int, Field(ge=3, le=2001)] = 201

    def __post_init__(self) -> None:
        check(self)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Sparsity(context.model, self)


class _Sparsity:
    """A row for each matrix or kernel."""

    at_once = 8

    def __init__(self, model: nn.Module, settings: Sparsity) -> None:
        self.weights, self.settings = list(weight_tensors(model)), settings
        if not self.weights:
            raise UserError("this model has no linear or convolutional layers, and sparsity analyses only those")
        self.components = components(model, [name for name, _ in self.weights])
        self.largest = max(float(weight.abs().max()) for _, weight in self.weights)
        self.range = _range([weight for _, weight in self.weights], self.largest)

    @property
    def length(self) -> int:
        return len(self.weights)

    def rows(self, start: int, stop: int) -> Arrays:
        measured = [self._row(weight.detach().float()) for _, weight in self.weights[start:stop]]
        return {name: np.stack([row[name] for row in measured]) for name in measured[0]}

    def _row(self, weight: Tensor) -> Arrays:
        size, threshold = weight.abs(), self.settings.threshold
        values = {
            "count": np.int64(weight.numel()),
            "below_global": np.int64((size < threshold * self.largest).sum().item()),
            "below_own": np.int64((size < threshold * size.max()).sum().item()),
            "l1": np.float64(size.double().sum().item()),
            "l2": np.float64(size.double().square().sum().sqrt().item()),
            "spectral": np.float64(spectral_norm(weight)),
            "histogram": torch.histc(weight, self.settings.bins, -self.range, self.range)
            .cpu()
            .numpy()
            .astype(np.int64),
        }
        return {name: np.asarray(value) for name, value in values.items()}

    def conclude(self, arrays: Arrays) -> Conclusion:
        component = np.array(self.components)
        scores, densities = [], {}
        for name in ("all", *COMPONENTS):
            mine = np.full(len(component), True) if name == "all" else component == name
            if not (total := int(arrays["count"][mine].sum())):
                continue
            word = "" if name == "all" else f"{name} "
            for kind in ("global", "own"):
                share = float(arrays[f"below_{kind}"][mine].sum() / total)
                scores.append(Score(metric="sparsity", value=share, n=0, column=f"{word}{kind}"))
            width = 2 * self.range / self.settings.bins
            densities[f"density {name}"] = arrays["histogram"][mine].sum(axis=0) / total / width
        scores += [
            Score(metric="weight_l1", value=float(arrays["l1"].sum()), n=0),
            Score(metric="weight_l2", value=float(np.sqrt(np.square(arrays["l2"]).sum())), n=0),
            Score(metric="largest_spectral_norm", value=float(arrays["spectral"].max()), n=0),
        ]
        names = [short_name(name) for name, _ in self.weights]
        facts = {
            "names": names,
            "components": self.components,
            "shapes": [list(weight.shape) for _, weight in self.weights],
            "largest": self.largest,
            "weights": int(arrays["count"].sum()),
            "outside": 1 - float(arrays["histogram"].sum() / arrays["count"].sum()),
        }
        edges = np.linspace(-self.range, self.range, self.settings.bins + 1)
        return Conclusion(scores=scores, facts=facts, arrays={"edges": edges, **densities})


def weight_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Matrices and kernels of linear, convolutional and attention layers: no biases, norms, tokens or tables."""
    for place, module in model.named_modules():
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear | nn.Bilinear):
            yield f"{place}.weight".lstrip("."), module.weight
        elif isinstance(module, nn.MultiheadAttention):
            for name, weight in module.named_parameters(recurse=False):
                if weight.ndim > 1 and name.endswith("proj_weight"):
                    yield f"{place}.{name}".lstrip("."), weight


def components(model: nn.Module, names: list[str]) -> list[str]:
    """The component of each weight: qkv (attention), feed-forward (MLP of a block), convolution, or other."""
    kinds = {"qkv": "qkv", "mlp": "feed-forward", "conv": "convolution"}
    members = {component: KINDS[word](model) for word, component in kinds.items()}
    return [next((word for word, inside in members.items() if name in inside), "other") for name in names]


def spectral_norm(weight: Tensor) -> float:
    """The largest singular value of the tensor as a matrix with a row for each output."""
    matrix = weight.flatten(1).double()
    smaller = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(smaller)[-1])))


def _range(weights: list[Tensor], largest: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that contains at least 99.9 % of the weights."""
    if largest == 0:
        return 1.0
    counts = sum(torch.histc(weight.detach().float().abs(), _FINE, 0, largest).cpu().double() for weight in weights)
    assert isinstance(counts, Tensor)
    within = int(torch.searchsorted(counts.cumsum(0), 0.999 * counts.sum())) + 1
    wanted = largest * min(within, _FINE) / _FINE
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(round_one * power for round_one in (1, 2, 5, 10) if round_one * power >= wanted * (1 - 1e-9))
