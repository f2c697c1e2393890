"""Suite `sweep`: one attack at growing radii."""

from __future__ import annotations

import dataclasses

from hardtack.attacks.autoattack import Stage
from hardtack.base.registry import suites
from hardtack.evaluation.scores import robustness_area
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, robust_results
from hardtack.evaluation.threat_stages import ThreatStages, make_attack, radius_factors, scaled_threats
from hardtack.results import Result
from hardtack.threats import Threat


@suites.register(
    "sweep", help="Robust accuracy against eps, from 0 to twice the threat: sweep=[…] in multiples of eps."
)
class SweepSuite(Suite):
    """The same attack at growing radii. An image that is broken in a small ball is broken in every larger one."""

    takes = ("threat", "attack", "sweep")
    attacks = True
    curve = True

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        attack = make_attack(config.attack, config.threat, seed)
        threats = scaled_threats(attack.threat, radius_factors(config))
        scaled = [dataclasses.replace(attack, threat=threat) for threat in threats]
        return [ThreatStages(threat=attack.threat, stages=(Stage(attack),), follows=True) for attack in scaled]

    def threat(self, config: EvaluationConfig) -> Threat:
        return make_attack(config.attack, config.threat, 0).threat

    def results(self, measurement: Measurement) -> list[Result]:
        results = robust_results(measurement, per_class=False)
        return [*results, robustness_area(measurement.columns, results[-1])]
