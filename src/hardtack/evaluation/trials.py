"""What attacks an image: the trials that each suite makes of the settings.

A trial is a threat and the attacks that are sent against it one after the other. Each suite is a function from
settings to trials; its first line of documentation is what `hardtack list suites` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hardtack.attacks import Ascent
from hardtack.attacks.autoattack import EOT, Stage, autoattack
from hardtack.attacks.contract import settings_of, unusual_settings
from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.base.runtime import Precision, Runtime
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.threats import Threat

_GREY_LEVEL = 1 / 255


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Attacks at one threat. `radii` are threats whose verdicts follow from the sizes of what was found."""

    threat: Threat
    stages: tuple[Stage, ...]
    follows: bool = False  # begins with the images that the trial before left standing
    radii: tuple[Threat, ...] = ()
    title: str = ""
    protocol: tuple[tuple[str, str], ...] = ()  # what stands for the stages where they have a name of their own

    @property
    def words(self) -> str:
        """`pgd steps=20 restarts=1 loss=ce`: the name, and the settings most readers ask for."""
        if self.title:
            return self.title
        attack, name = self.stages[0].attack, self.stages[0].name
        settings: dict[str, Any] = attack.settings()
        keys: list[str] = [
            key for key in ("steps", "restarts", "loss", "momentum", "target", "targets") if key in settings
        ]
        shown = {key: settings[key] for key in keys}
        if isinstance(attack, Ascent):
            shown["loss"] = attack.loss or "ce"
        shown |= {key: value for key, value in unusual_settings(attack).items() if key not in shown}
        kept = [f"{key}={value}" for key, value in shown.items() if value or key in ("steps", "restarts")]
        return " ".join([name, *kept])

    @property
    def settings(self) -> dict[str, Any]:
        if self.title:
            return dict(self.protocol) or {"stages": self.details}
        return {key: value for key, value in self.stages[0].attack.described().items() if key != "threat"}

    @property
    def details(self) -> list[dict[str, Any]]:
        """Every stage with all of its settings."""
        return [_plain_stage(stage) for stage in self.stages]


def _plain_stage(stage: Stage) -> dict[str, Any]:
    settings = {key: value for key, value in stage.attack.described().items() if key != "threat"}
    rounds = [{"tries": [list(attempt) for attempt in part.attempts], "near": part.near} for part in stage.rounds]
    special = {"suspects": stage.suspects, "near": stage.near, "fine": stage.fine, "rounds": rounds}
    return settings | {key: value for key, value in special.items() if value}


# ---------------------------------------------------------------- the suites


def _clean(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Accuracy on the images as they are."""
    return []


def _pgd(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Robust accuracy under projected gradient ascent: 20 steps, or any attack with attack=NAME attack.KEY=VALUE."""
    first = _attack(config.attack, config.threat, seed)
    further = [threat for threat in dict.fromkeys(config.union) if threat != first.threat]
    if further:
        first = _fits(first, config.threat or first.threat)
    made = [first, *(_fits(_attack(config.attack, threat, seed), threat) for threat in further)]
    return [Trial(threat=attack.threat, stages=(Stage(attack),)) for attack in made]


def _sweep(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Robust accuracy against eps, from 0 to twice the threat: sweep=[…] in multiples of eps.

    The same attack at growing radii. An image that fell in a small ball has fallen in every larger one.
    """
    attack = _attack(config.attack, config.threat, seed)
    at = [dataclasses.replace(attack, threat=attack.threat.scaled(factor)) for factor in _factors(config)]
    return [Trial(threat=one.threat, stages=(Stage(one),), follows=True) for one in at]


def _autoattack(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Robust accuracy under AutoAttack: tier=exact, verified, fast or max; version=standard, plus or rand."""
    title = f"autoattack {config.version} tier={config.tier}"
    return [
        Trial(
            threat=threat, title=title, protocol=(("version", config.version), ("tier", config.tier)),
            stages=tuple(autoattack(threat, version=config.version, tier=config.tier, seed=seed)),
        )
        for threat in _threats(config)
    ]  # fmt: skip


def _attacks(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Robust accuracy under a list of attacks: attacks=[apgd_ce, {name: square, steps: 1000}]."""
    if not config.attacks:
        raise UserError("suite=attacks needs a list: attacks=[apgd_ce,square] (hardtack list attacks shows them)")
    trials = []
    for threat in _threats(config):
        stages = tuple(Stage(_fits(_attack(given, threat, seed), threat)) for given in config.attacks)
        trials.append(Trial(threat=threat, stages=stages, title="+".join(stage.name for stage in stages)))
    return trials


def _curve(config: EvaluationConfig, seed: int) -> list[Trial]:
    """Robust accuracy against eps from one minimum-norm search (fmn): the whole curve for the price of a point."""
    radii = tuple(_threats(config)[0].scaled(factor) for factor in _factors(config))
    given = config.attack or "fmn"
    attack = _attack({"name": "fmn", **given} if isinstance(given, Mapping) else given, radii[-1], seed)
    return [Trial(threat=radii[-1], stages=(Stage(_fits(attack, radii[-1])),), radii=radii[:-1])]


TRIALS: dict[str, Callable[[EvaluationConfig, int], list[Trial]]] = {
    "clean": _clean, "pgd": _pgd, "sweep": _sweep, "autoattack": _autoattack, "attacks": _attacks, "curve": _curve,
}  # fmt: skip


def make_trials(config: EvaluationConfig, seed: int = 0) -> list[Trial]:
    """The trials of an evaluation; what is random in them follows from `seed` unless an attack has one of its own."""
    return TRIALS[config.suite](config, seed) if config.suite in TRIALS else []


DEFAULT_THREAT = Threat.parse("linf:8/255")


def _threats(config: EvaluationConfig) -> list[Threat]:
    return list(dict.fromkeys([config.threat or DEFAULT_THREAT, *config.union]))


def threat_of(config: EvaluationConfig) -> Threat:
    """The threat in words: what was asked for, or what stands in for it."""
    return config.threat or (_pgd(config, 0)[0].threat if config.suite == "pgd" else DEFAULT_THREAT)


def _factors(config: EvaluationConfig) -> list[Fraction]:
    try:
        factors = sorted({Fraction(str(word)) for word in config.sweep})
    except (ValueError, ZeroDivisionError):
        raise UserError(f"sweep takes multiples of eps such as 1/2, found {list(config.sweep)}") from None
    if factors[-1] <= 0:
        raise UserError(f"a sweep needs a radius above 0, found {list(config.sweep)}")
    return factors


def _attack(given: Any, threat: Threat | None, seed: int) -> Any:
    """An attack from its name or settings (pgd unless named); a value made in Python brings its own threat."""
    if not isinstance(given, Mapping | str):
        if "threat" not in settings_of(given):
            raise UserError("an attack to be measured needs a threat: make it a dataclass with a field of that name")
        return given
    settings = {"name": "pgd", **({"name": given} if isinstance(given, str) else given)}
    entry = attacks.get(settings["name"])
    if threat is not None or not _has_threat(entry.make):
        settings = {"threat": threat or DEFAULT_THREAT, **settings}
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm brings its one step along
        settings = {"steps": 20, **settings}
    attack = choose(attacks, settings, path="attack")
    return (
        dataclasses.replace(attack, seed=seed) if "seed" not in settings and "seed" in settings_of(attack) else attack
    )


def _fits(attack: Any, threat: Threat) -> Any:
    """The attack, where it is made for this threat: its images are judged by its own ball, and reported at this one."""
    if attack.threat != threat:
        name = attacks.name_of(attack) or type(attack).__name__
        raise UserError(f"{name} is made for {attack.threat}, but the verdict is to be about {threat}")
    return attack


def _has_threat(make: Any) -> bool:
    """Whether an attack says by itself what it may do, as those on patches do."""
    fields = {item.name: item for item in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else {}
    mine = fields.get("threat")
    missing = dataclasses.MISSING
    return mine is not None and (mine.default is not missing or mine.default_factory is not missing)


# ---------------------------------------------------------------- how it is computed


def votes(config: EvaluationConfig) -> int:
    """How often a model is asked before a verdict."""
    return EOT if config.suite == "autoattack" and config.version == "rand" else 1


def search_precision(config: EvaluationConfig, runtime: Runtime, pixels: int) -> Precision:
    """What searches compute in. Verdicts are always fp32.

    AutoAttack's exact tier is fp32; its other tiers take, on a GPU, bf16 where the threat is coarse enough for it
    (bf16 rounds a pixel by up to half a grey level) and TF32 elsewhere, unless the runtime asks for one of them.
    """
    if config.suite != "autoattack" or runtime.precision != "fp32":
        return "fp32" if config.suite == "autoattack" and config.tier == "exact" else runtime.precision
    if config.tier == "exact" or runtime.torch_device.type != "cuda":
        return "fp32"
    per_pixel = {"linf": 1.0, "l2": pixels**-0.5, "l1": 1.0}
    finest = min(threat.radius * per_pixel[threat.norm] for threat in _threats(config))
    return "bf16" if finest >= 2 * _GREY_LEVEL else "tf32"


def default_batch(image_shape: Sequence[int], device: str) -> int:
    """Slots that keep a device busy without much memory."""
    small = image_shape[-1] * image_shape[-2] <= 64 * 64
    if device == "cuda":
        return 512 if small else 128
    return 256 if small else 16
