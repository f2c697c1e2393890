"""What attacks an image: a threat, and the attacks that run against it one after the other.

`make_attack` builds an attack from the settings that a user typed; suites put attacks together as `ThreatStages`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hardtack.attacks import Ascent
from hardtack.attacks.adaptive import KEYS, AdaptiveAttack, GradientConfig, adapted, split_settings
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.contract import as_attack, own_threat, settings_of, unusual_settings
from hardtack.base.config import build, choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.threats import Threat

_FEWEST, _MOST = 16, 64  # survivors in the sample of an audit, unless `audit` says how many


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """What is done about the survivors of one threat.

    sample      how many of them are looked at (None: a quarter, at least 16 and at most 64)
    stages      the attacks on the sample; none: it is only examined
    escalation  the attacks on all survivors once there is a reason; none: the number stays, with a flag
    """

    sample: int | None = None
    stages: tuple[Stage, ...] = ()
    escalation: tuple[Stage, ...] = ()

    def size(self, survivors: int) -> int:
        """How many of so many survivors are in the sample."""
        wanted = min(max(survivors // 4, _FEWEST), _MOST) if self.sample is None else self.sample
        return min(wanted, survivors)


@dataclass(frozen=True, kw_only=True)
class ThreatStages:
    """The attacks at one threat.

    follows    begins with the images that the threat before left correctly classified
    radii      smaller threats whose verdicts follow from the size of the perturbation found
    title      the name of the whole list of attacks, where it has one
    protocol   settings that stand for the stages in the record, where the list is published under a name
    audit      what is done about images that remain correct afterwards (None: nothing)
    """

    threat: Threat
    stages: tuple[Stage, ...]
    follows: bool = False
    radii: tuple[Threat, ...] = ()
    title: str = ""
    protocol: tuple[tuple[str, str], ...] = ()
    audit: AuditPlan | None = None

    @property
    def words(self) -> str:
        """`pgd steps=20 restarts=1 loss=ce`: the name, and the settings most readers ask for."""
        if self.title:
            return self.title
        attack, name = self.stages[0].attack, self.stages[0].name
        settings: dict[str, Any] = attack.settings()
        inner = attack.attack if isinstance(attack, AdaptiveAttack) else attack
        keys = ("steps", "restarts", "loss", "momentum", "target", "targets")
        shown: dict[str, Any] = {key: settings[key] for key in keys if key in settings}
        if isinstance(inner, Ascent):
            shown["loss"] = inner.loss or "ce"
        shown |= {key: value for key, value in unusual_settings(inner).items() if key not in shown}
        kept = [f"{key}={value}" for key, value in shown.items() if value or key in ("steps", "restarts")]
        source = [attack.gradients.words()] if isinstance(attack, AdaptiveAttack) else []
        return " ".join([name, *kept, *source])

    @property
    def settings(self) -> dict[str, Any]:
        if self.title:
            return dict(self.protocol) or {"stages": self.details}
        return {key: value for key, value in self.stages[0].attack.described().items() if key != "threat"}

    @property
    def details(self) -> list[dict[str, Any]]:
        """Every stage with all of its settings, and the attacks of an audit that may change verdicts."""
        stages = [_plain_stage(stage) for stage in self.stages]
        if self.audit is None or not self.audit.escalation:
            return stages
        parts = {"stages": self.audit.stages, "escalation": self.audit.escalation}
        plan: dict[str, Any] = {name: [_plain_stage(stage) for stage in part] for name, part in parts.items()}
        return [*stages, {"audit": {"sample": self.audit.sample, **plan}}]


def _plain_stage(stage: Stage) -> dict[str, Any]:
    settings = {key: value for key, value in stage.attack.described().items() if key != "threat"}
    rounds = [{"tries": [list(attempt) for attempt in part.attempts], "near": part.near} for part in stage.rounds]
    special = {"suspects": stage.suspects, "near": stage.near, "fine": stage.fine, "exact": stage.exact}
    stream = {} if stage.stream is None else {"stream": stage.stream}
    return settings | {key: value for key, value in {**special, "rounds": rounds}.items() if value} | stream


DEFAULT_THREAT = Threat.parse("linf:8/255")


def all_threats(config: EvaluationConfig) -> list[Threat]:
    """The threat of an evaluation and the further ones of its `union`, each once."""
    return list(dict.fromkeys([config.threat or DEFAULT_THREAT, *config.union]))


def radius_factors(config: EvaluationConfig) -> list[Fraction]:
    """The radii of `sweep`, as multiples of the threat's radius, ascending."""
    try:
        factors = sorted({Fraction(str(word)) for word in config.sweep})
    except (ValueError, ZeroDivisionError):
        raise UserError(f"sweep takes multiples of eps such as 1/2, found {list(config.sweep)}") from None
    if factors[-1] <= 0:
        raise UserError(f"a sweep needs a radius above 0, found {list(config.sweep)}")
    return factors


def make_attack(settings: Any, threat: Threat | None, seed: int) -> Any:
    """An attack from its name or settings (pgd unless named); an attack made in Python brings its own threat.

    Without `threat` it is made for its own threat, as attacks on patches are, or for linf:8/255.
    """
    if not isinstance(settings, Mapping | str):
        if "threat" not in settings_of(settings):
            raise UserError("an attack to be measured needs a threat: make it a dataclass with a field of that name")
        return settings
    settings = {"name": "pgd", **({"name": settings} if isinstance(settings, str) else settings)}
    entry = attacks.get(settings["name"])
    settings, gradients = split_settings(settings, entry.make)
    settings = {"threat": threat or own_threat(entry.make) or DEFAULT_THREAT, **settings}
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm brings its one step along
        settings = {"steps": 20, **settings}
    attack = choose(attacks, settings, path="attack")
    takes_seed = "seed" not in settings and "seed" in settings_of(attack)
    attack = dataclasses.replace(attack, seed=seed) if takes_seed else attack
    return attack if gradients == GradientConfig() else adapted(as_attack(attack), gradients)


def common_gradients(config: EvaluationConfig) -> GradientConfig:
    """Where the attacks of a list take their gradients from, for a suite whose attacks `attack.…` does not name."""
    settings = config.attack
    if not isinstance(settings, Mapping):
        raise UserError(f"suite={config.suite} has its own attacks; attack={settings} is a setting of suite=pgd")
    for key in settings:
        if key not in KEYS:
            known = ", ".join(f"attack.{name}" for name in KEYS)
            word = "attack" if key == "name" else f"attack.{key}"
            raise UserError(
                f"'{word}' is a setting of suite=pgd; suite={config.suite} takes {known}, which hold for all of "
                "its attacks"
            )
    return build(GradientConfig, settings, path="attack")


def adapted_stages(stages: Sequence[Stage], gradients: GradientConfig) -> tuple[Stage, ...]:
    """The stages with these gradients, where they use any."""
    if gradients.replaces and not any(stage.attack.uses_logit_gradient for stage in stages):
        adapted(stages[0].attack, gradients)  # raises, because it would change nothing
    return tuple(dataclasses.replace(stage, attack=adapted(stage.attack, gradients, strict=False)) for stage in stages)


def eot_votes(config: EvaluationConfig) -> int:
    """Passes that decide one prediction of a random model: as many as the attack averages (`attack.eot`)."""
    eot = (
        config.attack.get("eot", 1) if isinstance(config.attack, Mapping) else settings_of(config.attack).get("eot", 1)
    )
    return eot if isinstance(eot, int) and eot > 1 else 1


def common_threat(chosen: Sequence[Any]) -> Threat:
    """The threat that all attacks of a list are made for. A list that mixes threats has no number, and is refused.

    An attack that may change a few patches does not share a threat with one that may change the whole image.
    """
    made_for: dict[tuple[Threat, bool], str] = {}
    for attack in map(as_attack, chosen):
        words = f"{attack.name} for {attack.threat}" + (f" ({attack.limits})" if attack.limits else "")
        made_for.setdefault((attack.threat, bool(attack.limits)), words)
    if len(made_for) > 1:
        raise UserError(
            f"these attacks are made for different threats: {', '.join(made_for.values())}; give one threat that holds "
            "for all of them, such as threat=linf:8/255, or evaluate them one by one"
        )
    return next(iter(made_for))[0]


def scaled_threats(threat: Threat, factors: Sequence[Fraction]) -> list[Threat]:
    """The threat at these multiples of its radius (ascending), as far as pixels can change."""
    if threat.norm == "linf" and threat.eps * factors[-1] > 1:
        raise UserError(
            f"{factors[-1]} times {threat} is beyond the range of pixel values, linf:1; give a smaller threat, such as "
            "threat=linf:8/255, or smaller multiples, such as sweep=[0,1/2,1]"
        )
    return [threat.scaled(factor) for factor in factors]


def require_threat(attack: Any, threat: Threat) -> Any:
    """The attack itself, if it is made for this threat; its images are verified against its own threat."""
    if attack.threat != threat:
        name = attacks.name_of(attack) or type(attack).__name__
        raise UserError(f"{name} is made for {attack.threat}, but the result is to be about {threat}")
    return attack


def default_batch(image_shape: Sequence[int], device: str, *, pooled: bool = False) -> int:
    """Images in one pass that keep a device busy without much memory; `pooled`: slots of a pool of attacks."""
    small = image_shape[-1] * image_shape[-2] <= 64 * 64
    if device == "cuda":
        return (1024 if pooled else 512) if small else 128
    return 128 if small else 16
