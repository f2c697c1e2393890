"""Suite `curve`: the whole accuracy-against-eps curve from one minimum-norm search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardtack.attacks.autoattack import Stage
from hardtack.base.registry import suites
from hardtack.evaluation.scores import robustness_area
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, robust_results
from hardtack.evaluation.threat_stages import (
    ThreatStages,
    make_attack,
    radius_factors,
    require_threat,
    scaled_threats,
)
from hardtack.results import Result
from hardtack.threats import Threat


@suites.register(
    "curve",
    help="Robust accuracy against eps from one minimum-norm search (fmn): the whole curve for the price of a point.",
)
class CurveSuite(Suite):
    """The size of the smallest perturbation found decides the verdict at every radius."""

    takes = ("threat", "attack", "sweep")
    attacks = True
    curve = True

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        radii = scaled_threats(self.threat(config), radius_factors(config))
        attack = require_threat(make_attack(_settings(config), radii[-1], seed), radii[-1])
        return [ThreatStages(threat=radii[-1], stages=(Stage(attack),), radii=tuple(radii[:-1]))]

    def threat(self, config: EvaluationConfig) -> Threat:
        return config.threat or make_attack(_settings(config), None, 0).threat

    def results(self, measurement: Measurement) -> list[Result]:
        results = robust_results(measurement, per_class=False)
        return [*results, robustness_area(measurement.columns, results[-1])]


def _settings(config: EvaluationConfig) -> Any:
    """What was given as the attack, fmn where it has no name."""
    settings = config.attack or "fmn"
    return {"name": "fmn", **settings} if isinstance(settings, Mapping) else settings
