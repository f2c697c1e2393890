"""Suite `attacks`: a list of attacks, each on the images that the attacks before it did not break."""

from __future__ import annotations

from hardtack.attacks.adaptive import KEYS
from hardtack.attacks.autoattack import Stage
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Suite
from hardtack.evaluation.threat_stages import (
    ThreatStages,
    adapted_stages,
    common_gradients,
    common_threat,
    make_attack,
    require_threat,
)
from hardtack.threats import Threat


@suites.register(
    "attacks", help="Robust accuracy under a list of attacks: attacks=[apgd_ce, {name: square, steps: 1000}]."
)
class AttacksSuite(Suite):
    """Several attacks one after the other."""

    takes = ("threat", "attacks", "union", "attack")
    attack_keys = KEYS
    attacks = True

    def threat(self, config: EvaluationConfig) -> Threat:
        if not config.attacks:
            raise UserError("suite=attacks needs a list: attacks=[apgd_ce,square] (hardtack list attacks shows them)")
        return config.threat or common_threat([make_attack(settings, None, 0) for settings in config.attacks])

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        threats = dict.fromkeys([self.threat(config), *config.union])
        sequences, gradients = [], common_gradients(config)
        for threat in threats:
            attacks = [require_threat(make_attack(settings, threat, seed), threat) for settings in config.attacks]
            stages = adapted_stages([Stage(attack) for attack in attacks], gradients)
            title = " ".join(["+".join(stage.name for stage in stages), *gradients.words().split()])
            sequences.append(ThreatStages(threat=threat, stages=stages, title=title))
        return sequences
