"""How sharply the loss bends at the trained weights: the Hessian's largest eigenvalues, its trace, and sharpness.

Sharpness is what SAM minimises (Foret et al. 2021): how far the loss rises within `rho` of the weights, by one step
along the gradient, and by several that stay in the ball. An attacked loss is that of the images as the attack leaves
them at the trained weights; they stay while the weights move.
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

from hardtack.analysis.adversary import make_adversary
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.curvature.hessian import Eigenvalues, Hessian, lanczos
from hardtack.analysis.landscape.directions import gaussian
from hardtack.analysis.landscape.loss import Losses
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.threats import Threat

_START, _PROBE = 1, 2  # what random vectors are for


@analyses.register("curvature", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Curvature(OverImages):
    """Largest eigenvalues of the loss's Hessian in the weights, its trace, and sharpness as SAM sees it.

    The `top` largest eigenvalues to a relative `tolerance`, by at most `most` Hessian-vector products; the trace from
    `probes` of them (none: it is left out). Sharpness within `rho` by one step and by `ascent` steps. With a `threat`
    the loss is that under attack (`attack`: its name and settings; PGD with 10 steps unless told).
    """

    n: Annotated[int, Field(ge=1)] = 200
    top: Annotated[int, Field(ge=1)] = 5
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    most: Annotated[int, Field(ge=2)] = 100
    probes: Annotated[int, Field(ge=0)] = 0
    rho: Annotated[float, Field(gt=0)] = 0.05
    ascent: Annotated[int, Field(ge=1)] = 10
    threat: Threat | None = None
    attack: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        if self.most <= self.top:
            raise UserError(f"{self.top} eigenvalues need more than {self.top} products, found most={self.most}")
        if self.threat is None and self.attack:
            raise UserError("an attack needs its threat: curvature.threat=linf:8/255")
        attack = make_adversary(self.attack, self.threat, steps=10) if self.threat is not None else {}
        object.__setattr__(self, "attack", attack)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Curvature(self, context)


class _Curvature:
    """The first row are the eigenvalues, each of the others is a probe of the trace."""

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
        """v·Hv with v of random signs has the trace for its mean (Hutchinson 1990)."""
        signs = self._random(_PROBE, row).sign()
        return self._row(trace=float(signs @ self.hessian.product(signs)))

    def _row(self, *, spectrum: Eigenvalues | None = None, trace: float = math.nan) -> Arrays:
        """Rows are of one shape: what a row does not have is no number."""
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
        """How far each image's loss rises: one step of length rho along the gradient; the worst of several."""
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
