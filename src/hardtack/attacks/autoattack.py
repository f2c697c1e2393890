"""AutoAttack (Croce and Hein 2020) as a list of stages, in four tiers.

exact      the official constants, order and quirks, in fp32
verified   the same passes, searched in bf16 or TF32; as everywhere, only what fp32 confirms counts
fast       our own: short ascents with a cosine step size, targets ranked at the closest image found, long searches only
           for images near the decision boundary, gradient-free search where gradients give no direction
max        all of them with their own random numbers and precision, and everything an audit would try, on all images

An evaluation does not end with these lists: a sample of what they leave is audited (`audit_stages`), and the images
that `fast` leaves are attacked by `full_stages` when the audit finds a reason (evaluation/audit.py).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from hardtack.attacks.adaptive import AdaptiveAttack, GradientConfig
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
    `exact`: searched in fp32, if the other stages are not. `stream`: its random numbers are those of the stage with
    this number (None: its place in the list).
    """

    attack: Attack
    rounds: tuple[Round, ...] = ()
    suspects: bool = False
    near: float | None = None
    fine: bool = False
    exact: bool = False
    stream: int | None = None

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
        return _everything(threat, seed)
    stages = [Stage(dataclasses.replace(attack, seed=seed)) for attack in _official(threat, version)]
    if tier == "verified" and version != "rand":
        # what bf16 rounds away decides one image in a few hundred: those with almost no margin are searched again
        again = APGD(threat=threat, loss="dlr", targets=9, official=True, widened=threat.norm == "l1", seed=seed)
        stages.append(Stage(again, near=EDGE, fine=True))
    return stages


def _everything(threat: Threat, seed: int) -> list[Stage]:
    """Every other list with the random numbers and the precision it has by itself, so that none breaks more."""
    verified = _numbered(autoattack(threat, tier="verified", seed=seed))
    exact = [dataclasses.replace(stage, exact=True) for stage in verified if not stage.fine]
    further = [*_official(threat, "plus"), *_stronger(threat)]
    rest = _numbered([Stage(dataclasses.replace(attack, seed=seed), exact=True) for attack in further])
    audits = [*_numbered(audit_stages(threat, seed=seed)), *_numbered(full_stages(threat, seed=seed))]
    lists = [*_numbered(fast(threat, seed=seed)), *verified, *exact, *rest]
    return list(dict.fromkeys([*lists, *(dataclasses.replace(stage, exact=True) for stage in audits)]))


def _numbered(stages: list[Stage]) -> list[Stage]:
    return [dataclasses.replace(stage, stream=number) for number, stage in enumerate(stages)]


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
    stages = [
        Stage(search, rounds),
        Stage(edge, (targets,), near=EDGE, fine=True),
        Stage(Square(threat=threat, seed=seed), suspects=True),
    ]
    if threat.norm == "l2":
        # an ascent may end at a maximum of the margin that lies inside the boundary; FAB follows the boundary instead
        stages.append(Stage(FAB(threat=threat, targets=3, steps=20, fused=True, seed=seed), near=0.5))
    return stages


# ---------------------------------------------------------------- what follows a search


AUDIT_QUERIES = 300  # of Square, in one run: several shorter ones break far fewer images that a search wrongly left
AUDIT_STEPS = 50
AUDIT_SMOOTH_STEPS = 10


def audit_stages(threat: Threat, *, seed: int = 0) -> list[Stage]:
    """Attacks on a sample of the images that a search left: few passes, and nothing that the search relied on."""
    ascent = APGD(threat=threat, loss="margin", steps=AUDIT_STEPS, widened=threat.norm == "l1", seed=seed)
    smooth = GradientConfig(smooth={"sigma": _noise(threat), "samples": 8})
    return [
        Stage(Square(threat=threat, steps=AUDIT_QUERIES, rescale=True, seed=seed)),
        Stage(ascent),
        Stage(AdaptiveAttack(attack=dataclasses.replace(ascent, steps=AUDIT_SMOOTH_STEPS), gradients=smooth)),
    ]


def full_stages(threat: Threat, *, seed: int = 0) -> list[Stage]:
    """Attacks on all images that are left, once there is a reason to distrust the search.

    The official list, then the same ascent along gradients that a shattered or a false gradient does not spoil: the
    mean over noise, and one that is estimated from values alone.
    """
    official = [Stage(dataclasses.replace(attack, seed=seed)) for attack in _official(threat, "standard")]
    ascent = APGD(threat=threat, loss="margin", steps=50, widened=threat.norm == "l1", seed=seed)
    smooth = GradientConfig(smooth={"sigma": _noise(threat), "samples": 16})
    estimated = GradientConfig(nes={"sigma": _noise(threat), "samples": 64})
    adaptive = [Stage(AdaptiveAttack(attack=ascent, gradients=source)) for source in (smooth, estimated)]
    return [*official, *adaptive]


def _noise(threat: Threat) -> float:
    """The deviation of noise around an image that still tells the classes apart: half the radius in linf."""
    return min(max(threat.radius / 2, 0.004), 0.1) if threat.norm == "linf" else 0.02
