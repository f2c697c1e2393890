"""Suite `smoothing`: certified accuracy in the l2 norm by randomised smoothing (Cohen et al. 2019).

A certificate is a lower bound: no perturbation whatever below the radius changes the prediction of the *smoothed*
model, with probability 1 − alpha for each image. It says nothing about the model without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

from hardtack.base.config import SEVERAL
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.evaluation.sanity import Flag, flag
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.smoothing import SmoothedView, largest_radius
from hardtack.evaluation.suites.contract import Measurement, Suite, SuiteContext
from hardtack.results import Result
from hardtack.results.metrics import certified_radii
from hardtack.threats import Threat

_UNTRAINED = 0.5  # of clean accuracy: below it the model does not know this noise
_MANY = 0.1  # of the images: so many abstentions are worth a word
Count = Annotated[int, Field(ge=1)]


@suites.register(
    "smoothing",
    help="Certified accuracy in l2 by randomised smoothing: a lower bound for the model smoothed by Gaussian noise.",
)
@dataclass(frozen=True, kw_only=True)
class SmoothingSuite(Suite):
    """Accuracy of the smoothed model, its certified accuracy at every radius, and the average certified radius.

    sigma   deviation of the Gaussian noise in pixel units: the one that the model was trained with
    n0      copies of an image that choose its class
    n       further copies that bound the probability of this class
    alpha   the probability with which the certificate of an image may be wrong
    radii   l2 radii of certified accuracy; null: 0, 1, 2 and 3 times sigma
    exact   predict all copies in fp32; false: a GPU takes half precision where rounding cannot change the class

    Paper: Cohen et al. 2019, Certified Adversarial Robustness via Randomized Smoothing (arXiv:1902.02918)
    """

    sigma: Annotated[float, Field(gt=0)] = 0.25
    n0: Count = 100
    n: Count = 100_000
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    radii: Annotated[tuple[str | float, ...], SEVERAL, Field(min_length=1)] | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.sigma):
            raise UserError(f"smoothing.sigma must be a finite number, found {self.sigma}")
        self.threats()  # refuses radii that are none

    def threats(self) -> list[Threat]:
        """The radii as threats, ascending."""
        if self.radii is None:
            return [Threat("l2", Fraction(str(self.sigma)) * times) for times in range(4)]
        return sorted({Threat.parse(f"l2:{radius}") for radius in self.radii}, key=lambda threat: threat.eps)

    def views(self, config: EvaluationConfig, context: SuiteContext) -> Sequence[SmoothedView]:
        return [
            SmoothedView(
                sigma=self.sigma, n0=self.n0, n=self.n, alpha=self.alpha, seed=context.seed, exact=self.exact
            )
        ]  # fmt: skip

    def results(self, measurement: Measurement) -> list[Result]:
        view, columns = cast(SmoothedView, measurement.views[0]), measurement.columns
        reach = largest_radius(sigma=self.sigma, n=self.n, alpha=self.alpha)
        abstained = float(columns["abstained@smoothing"].mean())
        how: dict[str, Any] = {
            "attack": f"smoothing sigma={self.sigma:g} n={self.n} alpha={self.alpha:g}",
            "attack_settings": view.settings,
            "extra": {**measurement.common["extra"], "largest_radius": reach, "abstained": abstained},
            "flags": (*measurement.flags, *self._flags(columns, reach, abstained)),
        }
        radii = certified_radii(columns)
        certified = [
            measurement.mean("certified_accuracy", radii > threat.radius, threat=str(threat), **how)
            for threat in self.threats()
        ]
        smoothed = measurement.mean("smoothed_accuracy", columns["vote@smoothing"] == columns["label"], **how)
        return [smoothed, *certified, measurement.mean("average_certified_radius", radii, **how)]

    def _flags(self, columns: Mapping[str, np.ndarray], reach: float, abstained: float) -> list[Flag]:
        """What makes certificates small, and how to have larger ones."""
        flags = []
        clean = float(columns["clean_correct"].mean())
        noisy = float((columns["prediction@smoothing"] == columns["label"]).mean())
        if noisy < _UNTRAINED * clean:
            flags.append(
                flag("yellow", "not_trained_with_noise",
                     f"the model is right on {clean:.1%} of the images, and on {noisy:.1%} under noise of deviation "
                     f"{self.sigma:g}: certificates need a model that was trained with this noise (objective=gaussian "
                     f"objective.sigma={self.sigma:g})")
            )  # fmt: skip
        if beyond := [threat for threat in self.threats() if threat.radius >= reach]:
            flags.append(
                flag("yellow", "radius_out_of_reach",
                     f"no image can be certified at {', '.join(map(str, beyond))}: with smoothing.n={self.n}, alpha "
                     f"{self.alpha:g} and sigma {self.sigma:g} the largest radius is {reach:.3g}")
            )  # fmt: skip
        if abstained > _MANY:
            flags.append(
                flag("yellow", "many_abstentions",
                     f"the smoothed model abstains on {abstained:.1%} of the images: no class is shown to have more "
                     "than half of the copies; a larger smoothing.n decides some of them")
            )  # fmt: skip
        return flags
