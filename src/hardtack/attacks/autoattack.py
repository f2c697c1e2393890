"""AutoAttack (Croce and Hein 2020) as a list of stages, in four tiers of the same question.

exact      the official constants, order and quirks, in fp32
verified   the same passes, searched in bf16 or TF32; as everywhere, only what fp32 confirms counts
fast       our own: short cosine ascents, targets ranked where the search has come closest, long searches only for
           images near the boundary, gradient-free search where gradients tell nothing
max        the union of everything
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hardtack.attacks.apgd import APGD
from hardtack.attacks.fab import FAB
from hardtack.attacks.pool.attempts import Attempts, Images
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import Try, success_margin
from hardtack.attacks.square import Square
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

Tier = Literal["exact", "verified", "fast", "max"]
Version = Literal["standard", "plus", "rand"]
EDGE = 0.05  # of its clean margin: an image that has less left is on the edge
EOT = 20  # passes over which a random model is averaged, and votes that decide a verdict on it


@dataclass(frozen=True)
class Stage:
    """One attack of a list. `rounds` replace its own tries.

    `suspects`: only images whose gradients tell nothing. `near`: only images of whose clean margin no more than this
    share is left. `fine`: searched with less rounding than the other stages, if those had any.
    """

    attack: Any
    rounds: tuple[Round, ...] = ()
    suspects: bool = False
    near: float | None = None
    fine: bool = False

    def tries(self, classes: int) -> list[Round]:
        """The rounds of a pooled search: its own tries, or those given, as far as there are classes to head for."""
        if not self.rounds:
            return [Round(tuple(self.attack.tries(classes)))]
        possible = [tuple(one for one in part.tries if one.rank < classes - 1) for part in self.rounds]
        pairs = zip(self.rounds, possible, strict=True)
        return [dataclasses.replace(part, tries=tries) for part, tries in pairs if tries]

    @property
    def name(self) -> str:
        """As it is registered; a form of APGD or FAB that is not, after its kind: apgd_pm, apgd_t."""
        kind = {APGD: "apgd", FAB: "fab"}.get(type(self.attack))
        if kind is not None and self.attack.targets:
            return f"{kind}_t"
        known = attacks.name_of(self.attack)
        return known or (f"apgd_{self.attack.loss}" if kind == "apgd" else type(self.attack).__name__)


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
        kept = list(dict.fromkeys(searches))
        return fast(threat, seed=seed) + [Stage(dataclasses.replace(one, seed=seed)) for one in kept]
    stages = [Stage(dataclasses.replace(one, seed=seed)) for one in _official(threat, version)]
    if tier == "verified" and version != "rand":
        # what bf16 rounds away decides an image in a few hundred: those on the very edge are searched again
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
    """One search in rounds, and Square for images on which it was blind.

    On robust transformers and residual networks a few steps down a cosine find in linf and l2 what a hundred find,
    provided that every likely class has its turn. So passes go into targets, ranked where the search came closest,
    and longer searches are kept for images near the boundary: how near is a matter of the image alone, so that no
    verdict depends on the company it was measured in. In l1 the support has to be found too, which takes more steps
    and AutoAttack's shrinking radii.
    """
    l1 = threat.norm == "l1"
    first, scan, again = (50, 50, 100) if l1 else (10, 8, 20)
    long = 2 * again
    rounds = (
        Round((Try(-1, 0, first),)),
        Round(tuple(Try(rank, 1, scan) for rank in range(9)), closest_first=True),
        Round(tuple(Try(rank, 2, again) for rank in (-1, 0, 1, 2)), Near(0.5), closest_first=True),
        Round(tuple(Try(rank, 3, long) for rank in (-1, 0, 1, 2)), Near(0.1), closest_first=True),
    )
    search = APGD(
        threat=threat, loss="margin", schedule="halving" if l1 else "cosine", widened=l1, steps=long,
        plans=tuple(sorted({first, scan, again, long})), seed=seed,
    )  # fmt: skip
    edge = dataclasses.replace(search, steps=again, plans=())
    targets = Round(tuple(Try(rank, 4, again) for rank in range(-1, 9)))
    return [
        Stage(search, rounds),
        Stage(edge, (targets,), near=EDGE, fine=True),
        Stage(Square(threat=threat, seed=seed), suspects=True),
    ]


@dataclass(frozen=True)
class Near:
    """Images of whose clean margin no more than `share` is left at the closest point found."""

    share: float

    def __call__(self, attempts: Attempts, images: Images, rows: np.ndarray) -> np.ndarray:
        clean = -success_margin(images.clean[rows], images.y[rows], images.y[rows], reach=False)
        return (-attempts.margin[rows] <= self.share * clean).cpu().numpy()
