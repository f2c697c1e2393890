"""AutoAttack (Croce and Hein 2020) as a list of stages, in four tiers.

exact      the official constants, order and quirks, in fp32
verified   the same passes, searched in bf16 or TF32; as everywhere, only what fp32 confirms counts
fast       our own: short ascents with a cosine step size, targets ranked at the closest image found, long searches only
           for images near the decision boundary, gradient-free search where gradients give no direction
max        the union of all of them
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from hardtack.attacks.apgd import APGD
from hardtack.attacks.contract import Attack, as_attack
from hardtack.attacks.fab import FAB
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import PlannedAttempt
from hardtack.attacks.square import Square
from hardtack.base.errors import UserError
from hardtack.threats import Threat

Tier = Literal["exact", "verified", "fast", "max"]
Version = Literal["standard", "plus", "rand"]
EDGE = 0.05  # an image that has no more than this share of its clean margin left is searched again
EOT = 20  # passes that are averaged on a random model, and votes that decide a verdict


@dataclass(frozen=True)
class Stage:
    """One attack of a list. `rounds` replace the attack's own attempts.

    `suspects`: only for images on which gradients give no direction. `near`: only for images that have no more than
    this share of their clean margin left. `fine`: searched with less rounding than the other stages, if those had any.
    """

    attack: Attack
    rounds: tuple[Round, ...] = ()
    suspects: bool = False
    near: float | None = None
    fine: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "attack", as_attack(self.attack))

    def rounds_for(self, classes: int) -> list[Round]:
        """The rounds of a pooled attack: its own attempts, or those given, as far as there are classes to aim at."""
        if not self.rounds:
            return [Round(tuple(self.attack.attempts(classes)))]
        possible = [tuple(attempt for attempt in part.attempts if attempt.rank < classes - 1) for part in self.rounds]
        pairs = zip(self.rounds, possible, strict=True)
        return [dataclasses.replace(part, attempts=attempts) for part, attempts in pairs if attempts]

    @property
    def name(self) -> str:
        return self.attack.name


def autoattack(threat: Threat, *, version: Version = "standard", tier: Tier = "verified", seed: int = 0) -> list[Stage]:
    """The stages of an AutoAttack evaluation at one threat."""
    if version == "rand" and tier in ("fast", "max"):
        raise UserError(f"version=rand has the tiers exact and verified, found tier={tier}")
    if tier == "fast":
        if version != "standard":
            raise UserError(f"tier=fast has no version={version}; take tier=max for more")
        return fast(threat, seed=seed)
    if tier == "max":
        searches = [*_official(threat, "standard"), *_official(threat, "plus"), *_stronger(threat)]
        different = list(dict.fromkeys(searches))
        return fast(threat, seed=seed) + [Stage(dataclasses.replace(attack, seed=seed)) for attack in different]
    stages = [Stage(dataclasses.replace(attack, seed=seed)) for attack in _official(threat, version)]
    if tier == "verified" and version != "rand":
        # what bf16 rounds away decides one image in a few hundred: those with almost no margin are searched again
        again = APGD(threat=threat, loss="dlr", targets=9, official=True, widened=threat.norm == "l1", seed=seed)
        stages.append(Stage(again, near=EDGE, fine=True))
    return stages


def _official(threat: Threat, version: Version) -> list[Any]:
    """The lists of the official implementation, in its order."""
    l1 = threat.norm == "l1"
    ascent: dict[str, Any] = {"threat": threat, "official": True}
    square = Square(threat=threat, official=True)
    if version == "rand":
        return [APGD(loss="ce", eot=EOT, **ascent), APGD(loss="dlr", eot=EOT, **ascent)]
    if version == "plus":
        return [
            APGD(loss="ce", restarts=5, **ascent), APGD(loss="dlr", restarts=5, **ascent),
            FAB(threat=threat, restarts=5), square,
            APGD(loss="dlr", targets=9, **ascent), FAB(threat=threat, targets=9),
        ]  # fmt: skip
    return [
        APGD(loss="ce", restarts=5 if l1 else 1, widened=l1, **ascent),
        APGD(loss="dlr", targets=5 if l1 else 9, widened=l1, **ascent),
        FAB(threat=threat, targets=9),
        square,
    ]


def _stronger(threat: Threat) -> list[Any]:
    """What the official lists leave out: losses that saturate later, more targets, a finer Square."""
    wide = threat.norm == "l1"
    return [
        APGD(threat=threat, loss="margin", restarts=5, widened=wide),
        APGD(threat=threat, loss="pm", targets=9, widened=wide),
        APGD(threat=threat, loss="margin", targets=9, steps=300, widened=wide),
        Square(threat=threat, steps=10_000, rescale=True),
    ]


# ---------------------------------------------------------------- fast


def fast(threat: Threat, *, seed: int = 0) -> list[Stage]:
    """One search in rounds, and Square for images on which gradients gave no direction.

    On robust transformers and residual networks a few steps with a cosine step size find in linf and l2 what a hundred
    steps find, provided that every likely class is aimed at. So passes go into targets, ranked at the closest image
    found, and longer searches are kept for images near the decision boundary. How near an image is depends on that
    image alone, so no verdict depends on the other images. In l1 the support has to be found too, which takes more
    steps and AutoAttack's shrinking radii.
    """
    l1 = threat.norm == "l1"
    first, scan, again = (50, 50, 100) if l1 else (10, 8, 20)
    long = 2 * again
    rounds = (
        Round((PlannedAttempt(-1, 0, first),)),
        Round(tuple(PlannedAttempt(rank, 1, scan) for rank in range(9)), closest_first=True),
        Round(tuple(PlannedAttempt(rank, 2, again) for rank in (-1, 0, 1, 2)), near=0.5, closest_first=True),
        Round(tuple(PlannedAttempt(rank, 3, long) for rank in (-1, 0, 1, 2)), near=0.1, closest_first=True),
    )
    search = APGD(
        threat=threat, loss="margin", schedule="halving" if l1 else "cosine", widened=l1, steps=long,
        plans=tuple(sorted({first, scan, again, long})), seed=seed,
    )  # fmt: skip
    edge = dataclasses.replace(search, steps=again, plans=())
    targets = Round(tuple(PlannedAttempt(rank, 4, again) for rank in range(-1, 9)))
    return [
        Stage(search, rounds),
        Stage(edge, (targets,), near=EDGE, fine=True),
        Stage(Square(threat=threat, seed=seed), suspects=True),
    ]
