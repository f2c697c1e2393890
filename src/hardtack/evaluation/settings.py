"""The settings of an evaluation, and which suites take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hardtack.attacks.autoattack import Tier, Version
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions import Constants
from hardtack.evaluation.masks import USUAL, PatchConfig
from hardtack.evaluation.views import Severities, Types
from hardtack.threats import Threat

ATTACKED = ("pgd", "sweep", "autoattack", "attacks", "curve")
SURVEYED = ("corruptions", "perturbations", "patches")
SUITES = ("clean", *ATTACKED, *SURVEYED)

Sweep = Annotated[tuple[str | float, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """`suite`: clean, pgd, autoattack, corruptions … (`hardtack list suites` says what each measures).

    threat         norm and radius (None: linf:8/255, or what an attack that has one of its own is made for)
    tier, version  of autoattack: exact, verified, fast or max; standard, plus or rand
    attack         the attack of pgd, sweep and curve: its name, its settings, or in Python the attack itself
    attacks        the attacks of suite=attacks, one after the other
    union          further threats; the last result is then the worst case over all of them
    sweep          radii of sweep and curve, in multiples of the threat's eps
    types          of corruptions and perturbations: names, or common, extra, noise, all
    severities     of corruptions, 1 to 5
    constants      of both: cifar or imagenet (None: by the size of the images)
    files          of both: a folder of official files (CIFAR-10-C, ImageNet-P …) instead of regenerated images
    frost          of corruptions: the folder of frost's overlay photographs (None: they are drawn)
    jpeg           of corruptions: store the images as JPEG of this quality before they are shown, as ImageNet-C's 85
    patches        of suite=patches: patches.share, patches.masks, patches.kinds … (see PatchConfig)
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
    jpeg: Annotated[int, Field(ge=1, le=100)] | None = None
    patches: PatchConfig = USUAL
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
    "threat": ATTACKED,
    "tier": ["autoattack"], "version": ["autoattack"], "attack": ["pgd", "sweep", "curve"], "attacks": ["attacks"],
    "union": ["pgd", "autoattack", "attacks"], "sweep": ["sweep", "curve"], "types": ["corruptions", "perturbations"],
    "severities": ["corruptions"], "constants": ["corruptions", "perturbations"],
    "files": ["corruptions", "perturbations"], "frost": ["corruptions"], "jpeg": ["corruptions"],
    "patches": ["patches"],
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
