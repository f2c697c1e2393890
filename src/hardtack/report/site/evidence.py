"""Badges: what is known about the evidence of a number.

They come from checks that this process makes, never from what a run folder says about itself: every number is counted
again from the stored verdicts and compared with the evidence record (`results.agreement`); with `--verify`, the stored
adversarial images are checked with the model, too (`hardtack verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hardtack.base.limits import shorten
from hardtack.results.disagreement import Agreement
from hardtack.results.leaderboard import CLEAN

# state → its badge; in this order of trust
BADGES: dict[str, tuple[str, str]] = {
    "verified": ("✓✓ verified", "green"),
    "checked": ("✓ checked", "green"),
    "counted": ("counted again", "grey"),
    "missing": ("no evidence", "grey"),
    "reported": ("reported", "grey"),
    "wrong": ("✗ contradicted", "red"),
}
MEANS = {
    "verified": "hardtack verify confirmed it when this site was made: the model, its clean predictions, and every "
    "stored adversarial image.",
    "checked": "It was counted again from the stored verdicts and agrees with the evidence record.",
    "counted": "It was counted again from the stored verdicts. Nothing ties its settings and its model to them.",
    "missing": "There is nothing beside it from which it could be counted again.",
    "reported": "Others report it; it was not measured here.",
    "wrong": "Its evidence contradicts it: do not quote it.",
}


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What `hardtack verify` found out about one evaluation; `failed` says why it could not be asked.

    shown   the images that the model was shown: adversarial and clean ones, clean ones (of corruptions and certificates
            nothing else is stored), or none (a protocol's row)
    """

    wrong: Sequence[str] = ()
    unverifiable: Sequence[str] = ()
    failed: str = ""
    shown: Literal["adversarial", "clean", "none"] = "adversarial"

    def confirms(self, metric: str) -> bool:
        """Whether it made sure of what a number of this metric is made of."""
        return not self.failed and (self.shown == "adversarial" or (self.shown == "clean" and metric == CLEAN))


def badge(agreement: Agreement | None, verified: Verified | None = None, metric: str = "") -> tuple[str, str]:
    """The state of the evidence of a number, of which `metric` is the kind, and a sentence about it."""
    if agreement is None:
        return "missing", MEANS["missing"]
    wrong = [*map(str, agreement.wrong), *(verified.wrong if verified and not verified.failed else ())]
    if wrong:
        return "wrong", f"{MEANS['wrong']} {shorten(wrong[0], 300)}"
    if agreement.reported:
        return "reported", MEANS["reported"]
    if agreement.unverifiable:
        return "missing", f"{MEANS['missing']} ({shorten(agreement.unverifiable[0], 300)})"
    if verified is not None and verified.confirms(metric) and agreement.has_record:
        notes = f" Not verifiable: {shorten('; '.join(verified.unverifiable), 300)}" if verified.unverifiable else ""
        return "verified", MEANS["verified"] + notes
    more = ""
    if verified is not None and verified.failed:
        more = f" It could not be verified: {shorten(verified.failed, 300)}"
    elif verified is not None and not verified.confirms(metric):
        more = (
            " hardtack verify finds nothing wrong, but it shows the model clean and adversarial images only, and this "
            "number needs others."
        )
    elif verified is None:
        more = " The model was not run; hardtack verify does that."
    state = "checked" if agreement.has_record else "counted"
    return state, MEANS[state] + more
