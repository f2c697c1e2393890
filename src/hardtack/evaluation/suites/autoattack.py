"""Suite `autoattack`: AutoAttack (Croce and Hein 2020) in four tiers."""

from __future__ import annotations

from hardtack.attacks.adaptive import KEYS
from hardtack.attacks.autoattack import EOT, audit_stages, autoattack, full_stages
from hardtack.base.registry import suites
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Suite
from hardtack.evaluation.threat_stages import AuditPlan, ThreatStages, adapted_stages, all_threats, common_gradients
from hardtack.models import cpu_layers
from hardtack.threats import Threat

_GREY_LEVEL = 1 / 255


@suites.register(
    "autoattack",
    help="Robust accuracy under AutoAttack: tier=exact, verified, fast or max; version=standard, plus or rand.",
)
class AutoAttackSuite(Suite):
    """The attacks of AutoAttack, one after the other, at every threat.

    Paper: Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
        Parameter-free Attacks (arXiv:2003.01690)
    """

    takes = ("threat", "tier", "version", "union", "attack")
    attack_keys = KEYS
    attacks = True

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        gradients = common_gradients(config)
        title = " ".join([f"autoattack {config.version} tier={config.tier}", *gradients.words().split()])
        protocol = (("version", config.version), ("tier", config.tier))
        own = (("gradients", gradients.words()),) if gradients.words() else ()
        stages = {
            threat: autoattack(threat, version=config.version, tier=config.tier, seed=seed)
            for threat in all_threats(config)
        }
        return [
            ThreatStages(
                threat=threat,
                title=title,
                protocol=(*protocol, *own),
                stages=adapted_stages(stages[threat], gradients),
                audit=_audit(config, threat, seed),
            )
            for threat in stages
        ]

    def votes(self, config: EvaluationConfig) -> int:
        return EOT if config.version == "rand" else super().votes(config)

    def chooses_precision(self, config: EvaluationConfig) -> bool:
        return config.tier != "exact"

    def search_precision(self, config: EvaluationConfig, runtime: Runtime, pixels: int) -> SearchPrecision:
        """fp32 in the exact tier, unless the runtime names a precision.

        The other tiers search as coarsely as the threat is: bf16 rounds a pixel by up to half a grey level, fp16 by an
        eighth of that. On a GPU finer threats than that are searched in TF32, which keeps pixels as they are; on a
        processor with instructions for bf16 all finer ones are searched in fp32.
        """
        if not self.chooses_precision(config):
            return "fp32"
        if runtime.precision != "fp32":
            return runtime.precision
        device = runtime.torch_device.type
        if device != "cuda" and not (device == "cpu" and cpu_layers.has_bf16()):
            return "fp32"
        per_pixel = {"linf": 1.0, "l2": pixels**-0.5, "l1": 1.0}
        finest = min(threat.radius * per_pixel[threat.norm] for threat in all_threats(config))
        if finest >= 2 * _GREY_LEVEL:
            return "bf16"
        if device == "cpu":
            return "fp32"
        return "fp16" if finest >= _GREY_LEVEL / 4 else "tf32"


def _audit(config: EvaluationConfig, threat: Threat, seed: int) -> AuditPlan | None:
    """Attacks on a sample of what is left; `fast` then goes on where it must, the others' lists are fixed.

    `audit=0` is the tier of version 0.1.0. A random model is not audited: attacks on it are `version=rand`'s.
    """
    if config.version == "rand" or config.audit == 0:
        return None
    escalation = tuple(full_stages(threat, seed=seed)) if config.tier == "fast" else ()
    return AuditPlan(sample=config.audit, stages=tuple(audit_stages(threat, seed=seed)), escalation=escalation)
