"""What a sample says about all: how many survivors an audit may have missed, and the line that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

CONFIDENCE = 0.95


def bound(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The bound, from the numbers of survivors, of those sampled, and of those broken."""
    most = most_breakable(facts["survivors"], facts["sample"], facts["broken"])
    return {"confidence": CONFIDENCE, "at_most": most, "bound": most / facts["survivors"]}


def most_breakable(survivors: int, sample: int, broken: int, confidence: float = CONFIDENCE) -> int:
    """The largest number of breakable survivors that is not refuted by finding `broken` of them in a random sample.

    A hypergeometric tail: a larger number would have led to so few with a probability below 1 − confidence.
    """
    low, high = broken, survivors - (sample - broken)
    while low < high:
        middle = (low + high + 1) // 2
        if _chance_of_at_most(broken, survivors, middle, sample) >= 1 - confidence:
            low = middle
        else:
            high = middle - 1
    return low


def _chance_of_at_most(broken: int, survivors: int, breakable: int, sample: int) -> float:
    """That a sample without replacement holds at most `broken` of the breakable ones."""
    total = _log_choose(survivors, sample)
    counts = range(max(0, sample - (survivors - breakable)), min(broken, breakable, sample) + 1)
    parts = (_log_choose(breakable, k) + _log_choose(survivors - breakable, sample - k) - total for k in counts)
    return sum(math.exp(part) for part in parts)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def audit_line(facts: Mapping[str, Any]) -> str:
    """What the audit of one threat found, in one line that is printed with the number."""
    words = f"audit {facts['threat']}: "
    if not facts["attacks"]:
        return ""
    tried = f"{facts['broken']} of {facts['sample']} sampled images that remain correct were broken by "
    words += tried + " and ".join(dict.fromkeys(facts["attacks"]))
    if facts.get("escalation", "none") != "none":
        how = "the full list" if facts["escalation"] == "full" else "the same attacks"
        return words + f"; all {facts['survivors']} were then attacked by {how}: {facts['broken_by_escalation']} broken"
    return words + (
        f"; with {facts['confidence']:.0%} confidence these would break at most {facts['bound']:.1%} of the "
        f"{facts['survivors']}"
    )


def audit_of(extra: Mapping[str, Any], threat: str | None) -> tuple[str, str]:
    """Of stored facts: a few words on the audit at one threat, and the whole line; nothing for unreadable facts."""
    audits = extra.get("audit")
    for facts in audits if isinstance(audits, list) else ():
        try:
            if threat is None or facts["threat"] != threat or not facts["attacks"]:
                continue
            if facts.get("escalation", "none") != "none":
                words = f"audit: {facts['broken_by_escalation']:d} more were broken"
            else:
                words = f"audit: at most {facts['bound']:.1%} of these breakable"
            return words, audit_line(facts)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return "", ""
