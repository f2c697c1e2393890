"""Suite `pgd`: one attack, PGD unless another is named."""

from __future__ import annotations

from hardtack.attacks.autoattack import Stage
from hardtack.base.registry import suites
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Suite
from hardtack.evaluation.threat_stages import ThreatStages, make_attack, require_threat
from hardtack.threats import Threat


@suites.register(
    "pgd",
    help="Robust accuracy under projected gradient ascent: 20 steps, or any attack with attack=NAME attack.KEY=VALUE.",
)
class PgdSuite(Suite):
    """One attack at one threat, or at each of several (`union`)."""

    takes = ("threat", "attack", "union")
    attacks = True

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        first = make_attack(config.attack, config.threat, seed)
        further = [threat for threat in dict.fromkeys(config.union) if threat != first.threat]
        if further:
            first = require_threat(first, config.threat or first.threat)
        others = [require_threat(make_attack(config.attack, threat, seed), threat) for threat in further]
        return [ThreatStages(threat=attack.threat, stages=(Stage(attack),)) for attack in (first, *others)]

    def threat(self, config: EvaluationConfig) -> Threat:
        return config.threat or self.threat_stages(config, 0)[0].threat
