"""The settings of an evaluation. Each suite says which of them it takes, and may bring more of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hardtack.attacks.autoattack import Tier, Version
from hardtack.base.annotations import AN_ATTACK, ATTACKS, NOT_TYPED, Shown
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.data.corruptions import Constants
from hardtack.data.corruptions.choose import Severities, Types
from hardtack.evaluation.masks import USUAL, PatchConfig
from hardtack.threats import Threat

Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The settings of an evaluation; each suite says which of them it takes.

    suite            what is measured (hardtack list suites); several are separated by commas
    threat           norm and radius of the attack; null: that of an attack that has one of its own, else linf:8/255
    tier             of autoattack: exact (as the official code), verified (the same verdicts, faster), fast, or max
                     (more attacks)
    version          of autoattack: standard, plus, or rand for models that are random
    attack           of pgd, sweep and curve: the attack, its name or attack.KEY=VALUE (hardtack list attacks); of
                     autoattack and attacks: where gradients come from (attack.smooth, attack.nes, attack.bpda,
                     attack.transfer, attack.eot)
    attacks          of suite=attacks: the attacks, one after the other, as [apgd_ce, {name: square, steps: 1000}]
    union            of suites that attack: further threats; the last result is then the worst case over all of them
    sweep            of sweep and curve: radii in multiples of the threat's eps
    types            of corruptions and perturbations: names of corruptions, or the groups common, extra, noise, all
    severities       of corruptions: severities, 1 to 5
    constants        of corruptions and perturbations: the constants of CIFAR-C or of ImageNet-C; null: by the size of
                     the images; of those that are enlarged, by the size they are stored at, at which they are then
                     corrupted
    files            of corruptions and perturbations: a folder of official files (CIFAR-10-C, ImageNet-P …) instead of
                     regenerated images; null: regenerated
    frost            of corruptions: the folder of frost's overlay photographs; null: they are drawn
    jpeg             of corruptions: quality of a JPEG that images pass through before they are shown, 85 as in
                     ImageNet-C; null: none
    confidence       of corruptions and patches: keep the probability of the true and of the predicted class for every
                     image; false: predictions alone, which a GPU computes faster
    patches          of suite=patches: what is hidden, and how
    batch_size       images in one pass of the model; null: what suits the device; it is halved where memory runs out
    chunk_size       images whose verdicts are written together; null: what suits the suite
    examples         images that are kept for the report
    audit            of suites that attack: images in the random sample of those that remain correct which is attacked
                     again; null: a quarter, at least 16 and at most 64; 0: no audit
    keep             store every adversarial image that decided a verdict, for hardtack verify
    suite_settings   settings of suites that bring their own, typed as NAME.key=value
    """

    suite: Annotated[str, Shown("suite", "hardtack list suites")] = "pgd"
    threat: Threat | None = None
    tier: Tier = "verified"
    version: Version = "standard"
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)
    attacks: Annotated[tuple[Any, ...], ATTACKS] = ()
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
    suite_settings: Annotated[dict[str, Any], NOT_TYPED] = field(default_factory=dict)

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
