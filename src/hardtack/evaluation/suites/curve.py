"""Suite `curve`: the whole accuracy-against-eps curve from one minimum-norm search."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.attacks.autoattack import Stage
from hardtack.base.registry import suites
from hardtack.evaluation.scores import robustness_area
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, robust_results
from hardtack.evaluation.threat_stages import ThreatStages, all_threats, make_attack, radius_factors, require_threat
from hardtack.results import Result


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
        radii = tuple(all_threats(config)[0].scaled(factor) for factor in radius_factors(config))
        settings = config.attack or "fmn"
        if isinstance(settings, Mapping):
            settings = {"name": "fmn", **settings}
        attack = require_threat(make_attack(settings, radii[-1], seed), radii[-1])
        return [ThreatStages(threat=radii[-1], stages=(Stage(attack),), radii=radii[:-1])]

    def results(self, measurement: Measurement) -> list[Result]:
        results = robust_results(measurement, per_class=False)
        return [*results, robustness_area(measurement.columns, results[-1])]
