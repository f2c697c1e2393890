"""The settings of an evaluation. Each suite says which of them it takes, and may bring more of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hardtack.attacks.autoattack import Tier, Version
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.choose import Severities, Types
from hardtack.evaluation.masks import USUAL, PatchConfig
from hardtack.threats import Threat

Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """`suite`: clean, pgd, autoattack, corruptions … (`hardtack list suites` says what each measures).

    threat         norm and radius (None: what the attack is made for if it has a threat of its own, else linf:8/255)
    tier, version  of autoattack: exact, verified, fast or max; standard, plus or rand
    attack         the attack of pgd, sweep and curve: its name, its settings, or in Python the attack itself; of
                   autoattack and attacks: where their gradients come from (attack.smooth, attack.bpda …)
    attacks        the attacks of suite=attacks, one after the other
    union          further threats; the last result is then the worst case over all of them
    sweep          radii of sweep and curve, in multiples of the threat's eps
    types          of corruptions and perturbations: names, or common, extra, noise, all
    severities     of corruptions, 1 to 5
    constants      of both: cifar or imagenet (None: by the size of the images; of those that are enlarged, by the size
                   they are stored at, at which they are then corrupted)
    files          of both: a folder of official files (CIFAR-10-C, ImageNet-P …) instead of regenerated images
    frost          of corruptions: the folder of frost's overlay photographs (None: they are drawn)
    jpeg           of corruptions: store the images as JPEG of this quality before they are shown, as ImageNet-C's 85
    confidence     of corruptions and patches: keep the probability of the true and of the predicted class for every
                   image (false: predictions alone, which a GPU computes faster)
    patches        of suite=patches: patches.share, patches.masks, patches.kinds … (see PatchConfig)
    batch_size     images in one pass of the model (None: what suits the device); out of memory halves it
    chunk_size     images whose verdicts are written together (None: what suits the suite)
    examples       images that are kept for the report
    audit          of suites that attack: images in the random sample of those that remain correct which is attacked
                   again (None: a quarter, at least 16 and at most 64; 0: no audit)
    keep           store every adversarial image that decided a verdict, for `hardtack verify`
    suite_settings settings of suites that bring their own, typed as NAME.key=value
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
    jpeg: Annotated[int, Field(ge=1, le=100)] | None = None
    confidence: bool = True
    patches: PatchConfig = USUAL
    batch_size: Annotated[int, Field(ge=1)] | None = None
    chunk_size: Annotated[int, Field(ge=1)] | None = None
    examples: Annotated[int, Field(ge=0)] = 12
    audit: Annotated[int, Field(ge=0)] | None = None
    keep: bool = True
    suite_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_taken(self, [self.suite])


# settings that every suite uses; all others are used by some suites only
_SHARED = frozenset({"suite", "batch_size", "chunk_size", "examples", "audit", "keep", "suite_settings"})
_OF_SOME = tuple(item.name for item in dataclasses.fields(EvaluationConfig) if item.name not in _SHARED)


def suite_class(name: str) -> Any:
    """The class of a suite (see `suites.contract.Suite`), without its settings."""
    make: Any = suites.get(name).make
    try:
        assert isinstance(make.takes, tuple)
    except (AttributeError, AssertionError):
        raise UserError(f"the suite '{name}' must be a class derived from hardtack.evaluation.Suite") from None
    return make


def not_taken(suite: str) -> set[str]:
    """The settings that a suite does not use."""
    return set(_OF_SOME) - set(suite_class(suite).takes)


def attack_settings(suite: str, attack: Any, names: Sequence[str]) -> Any:
    """The part of `attack.…` that a suite takes, where another of the suites `names` takes the rest."""
    keys = suite_class(suite).attack_keys
    takers = [name for name in names if "attack" in suite_class(name).takes and suite_class(name).attack_keys is None]
    if keys is None or not takers:
        return attack
    return {key: value for key, value in attack.items() if key in keys} if isinstance(attack, Mapping) else {}


def check_taken(config: EvaluationConfig, names: Sequence[str]) -> None:
    """Refuse a setting that none of the suites takes: ignoring it would measure something else than was asked."""
    unused = [not_taken(name) for name in names if not suite_class(name).accepts_all_settings]
    for setting in sorted(set.intersection(*unused)) if unused else ():
        default = getattr(EvaluationConfig, setting, {})  # `attack` has no default on the class: it is made anew
        if getattr(config, setting) != default:
            takers = [name for name in suites.names() if setting in suite_class(name).takes]
            raise UserError(f"'{setting}' is a setting of suite={' or '.join(takers)}, found suite={','.join(names)}")
    for name in config.suite_settings:
        if name not in names:
            raise UserError(f"'{name}.…' are settings of suite={name}, found suite={','.join(names)}")


def gather_suite_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `NAME.key` of suites that bring their own, gathered under `suite_settings`."""
    fields = {item.name for item in dataclasses.fields(EvaluationConfig)}
    own = {name: value for name, value in values.items() if name not in fields and name in suites}
    rest = {name: value for name, value in values.items() if name not in own}
    return {**rest, "suite_settings": {**rest.get("suite_settings", {}), **own}} if own else rest
