"""What is measured: the settings of an evaluation, and the trials that each suite makes of them.

A trial is a threat and the attacks that are sent against it one after the other. Each suite is a function from
settings to trials; its first line of documentation is what `hardtack list suites` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

from hardtack.attacks import Ascent
from hardtack.attacks.ensemble import EOT, Stage, Tier, Version, autoattack
from hardtack.config import choose, plain
from hardtack.data.corruptions import Constants, constants_for
from hardtack.errors import UserError, did_you_mean
from hardtack.evaluation.views import Severities, Types, View, corruption_views, official_views
from hardtack.registry import attacks
from hardtack.runtime import Precision, Runtime
from hardtack.threats import Threat

Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]
_GREY_LEVEL = 1 / 255


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """`suite`: clean, pgd, sweep, autoattack, attacks, curve or corruptions (`hardtack list suites`).

    threat         norm and radius (None: linf:8/255, or what an attack that has one of its own is made for)
    tier, version  of autoattack: exact, verified, fast or max; standard, plus or rand
    attack         the attack of pgd, sweep and curve: its name, its settings, or in Python the attack itself
    attacks        the attacks of suite=attacks, one after the other
    union          further threats; the last result is then the worst case over all of them
    sweep          radii of sweep and curve, in multiples of the threat's eps
    types          of corruptions: names, or common, extra, noise, all
    severities     of corruptions, 1 to 5
    constants      of corruptions: cifar or imagenet (None: by the size of the images)
    files          of corruptions: a folder of official files (CIFAR-10-C …) instead of regenerated images
    frost          of corruptions: the folder of frost's overlay photographs (None: they are drawn)
    batch_size     images in one pass of the model (None: what suits the device); out of memory halves it
    chunk_size     images whose verdicts are written together (None: what suits the suite)
    keep           store every adversarial image that decided a verdict, for `hardtack verify`
    """

    suite: str = "pgd"
    threat: Threat | None = None
    tier: Tier = "verified"
    version: Version = "standard"
    attack: Any = field(default_factory=dict)
    attacks: tuple[Any, ...] = ()
    union: tuple[Threat, ...] = ()
    sweep: Sweep = ("0", "1/4", "1/2", "3/4", "1", "3/2", "2")
    types: Types = ("common",)
    severities: Severities = (1, 2, 3, 4, 5)
    constants: Constants | None = None
    files: str | None = None
    frost: str | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    chunk_size: Annotated[int, Field(ge=1)] | None = None
    examples: Annotated[int, Field(ge=0)] = 12
    keep: bool = True

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            hint = did_you_mean(self.suite, SUITES) or f"; known: {', '.join(SUITES)}"
            raise UserError(f"there is no suite '{self.suite}'{hint}")
        check_taken(self, [self.suite])


# settings that only some suites take: to leave one out without a word would measure something else than was asked
_TAKEN_BY = {
    "tier": ["autoattack"], "version": ["autoattack"], "attack": ["pgd", "sweep", "curve"], "attacks": ["attacks"],
    "union": ["pgd", "autoattack", "attacks"], "sweep": ["sweep", "curve"], "types": ["corruptions"],
    "severities": ["corruptions"], "constants": ["corruptions"], "files": ["corruptions"], "frost": ["corruptions"],
}  # fmt: skip


def not_taken(suite: str) -> set[str]:
    """The settings that mean nothing to a suite."""
    return {name for name, suites in _TAKEN_BY.items() if suite not in suites}


def check_taken(config: EvaluationConfig, suites: Sequence[str]) -> None:
    """Refuse a setting that none of the suites takes. One that attacks nothing cannot mislead, and bears any."""
    unheard = [not_taken(suite) for suite in suites if suite != "clean"]
    for name in sorted(set.intersection(*unheard)) if unheard else ():
        default = getattr(EvaluationConfig, name, {})  # `attack`, whose default is made anew each time
        if getattr(config, name) != default:
            takers = " or ".join(_TAKEN_BY[name])
            raise UserError(f"'{name}' is a setting of suite={takers}, found suite={','.join(suites)}")


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
        keys = [key for key in ("steps", "restarts", "loss", "momentum", "target", "targets") if hasattr(attack, key)]
        shown = {key: getattr(attack, key) for key in keys}
        if isinstance(attack, Ascent):
            shown["loss"] = attack.loss or "ce"
        shown |= {key: value for key, value in _unusual(attack).items() if key not in shown}
        kept = [f"{key}={value}" for key, value in shown.items() if value or key in ("steps", "restarts")]
        return " ".join([name, *kept])

    @property
    def settings(self) -> dict[str, Any]:
        if self.title:
            return dict(self.protocol) or {"stages": self.details}
        return {key: value for key, value in plain(self.stages[0].attack).items() if key != "threat"}

    @property
    def details(self) -> list[dict[str, Any]]:
        """Every stage with all of its settings."""
        return [_plain_stage(stage) for stage in self.stages]


def _unusual(attack: Any) -> dict[str, Any]:
    """The settings of an attack that are not its defaults, so that no two of them read alike."""
    found = {}
    for item in dataclasses.fields(attack) if dataclasses.is_dataclass(attack) else ():
        usual = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        value = getattr(attack, item.name)
        if item.name not in ("threat", "seed", "weights") and item.init and value != usual:
            found[item.name] = plain(value) if not isinstance(value, str | int | float) else value
    return found


def _plain_stage(stage: Stage) -> dict[str, Any]:
    settings = {key: value for key, value in plain(stage.attack).items() if key != "threat"}
    rounds = [
        {"tries": [list(one) for one in part.tries], "near": getattr(part.enters, "share", None)}
        for part in stage.rounds
    ]
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


def _corruptions(config: EvaluationConfig, seed: int) -> list[View]:
    """Accuracy under common corruptions, regenerated, or from official files with files=FOLDER."""
    severities = tuple(sorted(set(config.severities)))
    if config.files is not None:
        return official_views(config.files, config.types, severities)
    return corruption_views(config.types, severities, config.constants or "cifar", seed=seed, frost=config.frost)


SUITES: dict[str, Callable[[EvaluationConfig, int], list[Any]]] = {
    "clean": _clean, "pgd": _pgd, "sweep": _sweep, "autoattack": _autoattack, "attacks": _attacks, "curve": _curve,
    "corruptions": _corruptions,
}  # fmt: skip


def make_trials(config: EvaluationConfig, seed: int = 0) -> list[Trial]:
    """The trials of an evaluation; what is random in them follows from `seed` unless an attack has one of its own."""
    return [] if is_survey(config) else SUITES[config.suite](config, seed)


def make_views(config: EvaluationConfig, image_size: int, seed: int = 0) -> list[View]:
    """The views of an evaluation that attacks nothing; none of one that does."""
    if not is_survey(config):
        return []
    constants = config.constants or constants_for(image_size)
    return SUITES[config.suite](dataclasses.replace(config, constants=constants), seed)


def is_survey(config: EvaluationConfig) -> bool:
    return config.suite in ("corruptions",)


DEFAULT_THREAT = Threat.parse("linf:8/255")


def _threats(config: EvaluationConfig) -> list[Threat]:
    return list(dict.fromkeys([config.threat or DEFAULT_THREAT, *config.union]))


def threat_of(config: EvaluationConfig) -> Threat:
    """The threat in words: what was asked for, or what stands in for it."""
    return config.threat or (_pgd(config, 0)[0].threat if config.suite == "pgd" else DEFAULT_THREAT)


def _factors(config: EvaluationConfig) -> list[Fraction]:
    try:
        return sorted({Fraction(str(word)) for word in config.sweep})
    except (ValueError, ZeroDivisionError):
        raise UserError(f"sweep takes multiples of eps such as 1/2, found {list(config.sweep)}") from None


def _attack(given: Any, threat: Threat | None, seed: int) -> Any:
    """An attack from its name or settings (pgd unless named); a value made in Python brings its own threat."""
    if not isinstance(given, Mapping | str):
        if not hasattr(given, "threat") or not dataclasses.is_dataclass(given):
            raise UserError("an attack to be measured needs a threat: make it a dataclass with a field of that name")
        return given
    settings = {"name": "pgd", **({"name": given} if isinstance(given, str) else given)}
    entry = attacks.get(settings["name"])
    if threat is not None or not _has_threat(entry.make):
        settings = {"threat": threat or DEFAULT_THREAT, **settings}
    if entry.make is Ascent and "steps" not in entry.presets:  # fgsm brings its one step along
        settings = {"steps": 20, **settings}
    attack = choose(attacks, settings, path="attack")
    return dataclasses.replace(attack, seed=seed) if "seed" not in settings and hasattr(attack, "seed") else attack


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
