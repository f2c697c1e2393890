"""Curvature of the loss at the trained weights: the largest eigenvalues of the Hessian, its trace, and sharpness.

Sharpness is what SAM minimises (Foret et al. 2021): the rise of the loss within distance `rho` of the weights, found by
one step along the gradient, or by several projected steps. The loss under attack is that of images attacked at the
trained weights; these images stay fixed while the weights change.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hardtack.analysis.adversary import optional_adversary
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.curvature.hessian import Eigenvalues, Hessian, lanczos
from hardtack.analysis.landscape.directions import gaussian
from hardtack.analysis.landscape.loss import Losses
from hardtack.base.annotations import AN_ATTACK
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.threats import Threat

_START, _PROBE = 1, 2  # streams of random numbers


@analyses.register("curvature", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Curvature(OverImages):
    """Largest eigenvalues of the Hessian of the loss in the weights, its trace, and SAM's sharpness.

    n           the number of images, from the first one on
    top         how many of the largest eigenvalues are computed
    tolerance   their relative tolerance
    most        most Hessian-vector products for them
    probes      Hessian-vector products that the trace is estimated from; 0: no trace
    rho         radius in the weights within which sharpness is measured
    ascent      steps of the longer of its two searches; the other has one
    threat      the loss is that under attack in this threat; null: the clean loss
    attack      the attack, its name or settings, as in evaluate; by default PGD of 10 steps
    """

    n: Annotated[int, Field(ge=1)] = 200
    top: Annotated[int, Field(ge=1)] = 5
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    most: Annotated[int, Field(ge=2)] = 100
    probes: Annotated[int, Field(ge=0)] = 0
    rho: Annotated[float, Field(gt=0)] = 0.05
    ascent: Annotated[int, Field(ge=1)] = 10
    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        if self.most <= self.top:
            raise UserError(f"{self.top} eigenvalues need more than {self.top} products, found most={self.most}")
        threat, attack = optional_adversary("curvature", self.attack, self.threat, steps=10)
        object.__setattr__(self, "threat", threat)
        object.__setattr__(self, "attack", attack)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Curvature(self, context)


class _Curvature:
    """The first row has the eigenvalues; each further row is one probe of the trace."""

    at_once = 1

    def __init__(self, settings: Curvature, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.length = 1 + settings.probes
        self.losses = Losses(context, settings.attack or None, settings.batch_size)
        self.names = [name for name, weight in context.model.named_parameters() if weight.is_floating_point()]
        self.hessian = Hessian(copy.deepcopy(context.model), self.losses.crafted(context.model))

    def rows(self, start: int, stop: int) -> Arrays:
        measured = [self._eigenvalues() if row == 0 else self._probe(row) for row in range(start, stop)]
        return {name: np.stack([row[name] for row in measured]) for name in measured[0]}

    def _eigenvalues(self) -> Arrays:
        wanted = self.settings
        spectrum = lanczos(
            self.hessian.product, lambda number: self._random(_START, number), top=wanted.top,
            tolerance=wanted.tolerance, most=wanted.most, folder=self.context.scratch,
        )  # fmt: skip
        return self._row(spectrum=spectrum)

    def _probe(self, row: int) -> Arrays:
        """v·Hv with random signs v; its expectation is the trace (Hutchinson 1990)."""
        signs = self._random(_PROBE, row).sign()
        return self._row(trace=float(signs @ self.hessian.product(signs)))

    def _row(self, *, spectrum: Eigenvalues | None = None, trace: float = math.nan) -> Arrays:
        """All rows have the same arrays; values that a row does not have are NaN."""
        arrays = {name: np.full(self.settings.top + 1, np.nan) for name in ("eigenvalues", "errors")}
        if spectrum is not None:
            for name, values, last in (
                ("eigenvalues", spectrum.values, spectrum.lowest),
                ("errors", spectrum.errors, spectrum.lowest_error),
            ):
                arrays[name][: len(values)], arrays[name][-1] = values, last
        done = [spectrum.products, int(spectrum.converged)] if spectrum is not None else [1, 1]
        return {**arrays, "trace": np.array(trace), "products": np.array(done)}

    def _random(self, *words: int) -> Tensor:
        weights = zip(self.names, self.hessian.weights, strict=True)
        drawn = [gaussian(name, weight.shape, self.context.seed, *words).reshape(-1) for name, weight in weights]
        return torch.cat(drawn).to(self.context.device)

    def sharpness(self) -> dict[str, np.ndarray]:
        """The rise of each image's loss: after one step of length rho along the gradient; the largest of several."""
        rho, steps = self.settings.rho, self.settings.ascent
        here = self._each(None)
        place = rho * _unit(self.hessian.gradient())
        risen = {"sam": self._each(place) - here}
        risen["worst"] = risen["sam"]
        place = torch.zeros_like(place)
        for _ in range(steps):
            with self.hessian.displaced(place):
                place = place + 2.5 * rho / steps * _unit(self.hessian.gradient())
            place = place * min(1.0, rho / float(place.norm().clamp_min(1e-30)))
            reached = self._each(place) - here
            if reached.mean() > risen["worst"].mean():
                risen["worst"] = reached
        return risen

    def _each(self, place: Tensor | None) -> np.ndarray:
        with self.hessian.displaced(place) if place is not None else contextlib.nullcontext():
            return self.losses.each(self.hessian.model, self.hessian.images)[0].cpu().numpy()

    def conclude(self, arrays: Arrays) -> Conclusion:
        top, n = self.settings.top, len(self.losses.images)
        threat = str(self.settings.threat) if self.settings.threat else None
        values, errors = arrays["eigenvalues"][0], arrays["errors"][0]
        named = [*((f"{place + 1}", place) for place in range(top)), ("lowest", top)]
        scores = [
            Score(
                metric="hessian_eigenvalue", value=float(values[at]), n=n, low=float(values[at] - errors[at]),
                high=float(values[at] + errors[at]), interval="residual", column=column, threat=threat,
            )
            for column, at in named
            if np.isfinite(values[at])
        ]  # fmt: skip
        if self.settings.probes:
            scores.append(_trace(arrays["trace"][1:], n, threat))
        risen = self.sharpness()
        scores += [mean_score("sharpness", rise, column=word, threat=threat) for word, rise in risen.items()]
        products, converged = (int(value) for value in arrays["products"][0])
        kept = {
            **self.losses.images.each(), "eigenvalues": values[:top], "errors": errors[:top],
            "trace": arrays["trace"][1:],
        }  # fmt: skip
        missing = f"the eigenvalues did not converge within {products} products: raise curvature.most"
        facts = {"products": products, "converged": bool(converged), "weights": sum(self.hessian.sizes)}
        notes = [*self.losses.blind_notes(), *([] if converged else [missing])]
        return Conclusion(scores=scores, facts=facts, arrays=kept, notes=notes)


def _trace(probes: np.ndarray, n: int, threat: str | None) -> Score:
    mean = float(probes.mean())
    wide = 1.96 * float(probes.std(ddof=1)) / math.sqrt(len(probes)) if len(probes) > 1 else None
    low, high = (None, None) if wide is None else (mean - wide, mean + wide)
    return Score(
        metric="hessian_trace", value=mean, n=n, low=low, high=high, interval=f"{len(probes)} probes, 95%",
        threat=threat,
    )  # fmt: skip


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp_min(1e-30)
