"""Numbers as a reader wants them: percentages with their interval, perturbations in the threat's units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hardtack.results import REPORTED, Result, find_metric, is_share, source_of

WHOLE_BOX = "linf:1"  # any pixel may take any value: no bound at all
NORMS = {"linf": "ℓ∞", "l2": "ℓ₂", "l1": "ℓ₁", "l0": "ℓ₀"}

_IN_WORDS = ("reported", "corruptions", "perturbations")  # suites whose attack is a description, not a name

SOURCES = {
    "official": "official files",
    "regenerated": "regenerated, not the official files",
    "reported": "reported, not measured here",
}


def metric_name(metric: str) -> str:
    return find_metric(metric).title


def number(value: float | None, metric: str = "robust_accuracy") -> str:
    if value is None:
        return "—"
    return f"{100 * value:.1f}%" if is_share(metric) else f"{value:.4g}"


def interval(result: Result) -> str:
    """`58.9–63.5%`, or nothing when the result carries no interval."""
    if result.low is None or result.high is None:
        return ""
    if is_share(result.metric):
        return f"{100 * result.low:.1f}–{100 * result.high:.1f}%"
    return f"{result.low:.4g}–{result.high:.4g}" if result.low >= 0 else f"{result.low:.4g} to {result.high:.4g}"


def with_interval(result: Result) -> str:
    """`61.2% (58.9–63.5%)`."""
    bounds = interval(result)
    return number(result.value, result.metric) + (f" ({bounds})" if bounds else "")


def images(result: Result) -> str:
    """`digits/test, 360 images`, as far as it is known."""
    return f"{result.data}, {image_count(result.n)}" if result.n else result.data


def image_count(n: int) -> str:
    return f"{n:,} image" if n == 1 else f"{n:,} images"


def image_sets(results: Iterable[Result]) -> list[tuple[str, str, str]]:
    """`("digits/test", "up to 360 images", "32×32 as stored; first 360")`: what was measured on here.

    The first ten images of a split and its first hundred are one set. Of weights alone there is none.
    """
    sets: dict[tuple[str, str], dict[int, str]] = {}
    for result in results:
        if result.data and result.n and source_of(result) != REPORTED:
            description = re.sub(r"(^|; )first \d+(?=;|$)", "", result.data_description)
            sets.setdefault((result.data, description), {})[result.n] = result.data_description
    return [
        (
            data,
            f"{'up to ' if len(descriptions) > 1 else ''}{image_count(max(descriptions))}",
            descriptions[max(descriptions)],
        )
        for (data, _), descriptions in sets.items()
    ]


def source(source: str) -> str:
    """Where the images or the number come from, said so that nobody takes one for the other."""
    return SOURCES.get(source, source)


def making(settings: Mapping[str, Any]) -> list[str]:
    """How corrupted images were made, as far as it changes the numbers: JPEG, and what frost lays over them."""
    jpeg, overlays = settings.get("jpeg"), settings.get("overlays")
    return [*([f"stored as JPEG {jpeg}"] if jpeg else []), *([f"frost: {overlays}"] if overlays else [])]


def class_name(name: str) -> str:
    """`class 3` where classes are only numbered: a bare 3 would be taken for a count."""
    return f"class {name}" if name.isdecimal() else name


def spaced(name: str) -> str:
    """`gaussian_noise` as `gaussian noise`."""
    return name.replace("_", " ")


def attack_of(settings: Mapping[str, Any], *, otherwise: str = "attack") -> str:
    """`pgd-20`, from the settings of a finding; `otherwise` where they do not name the attack."""
    attack = settings.get("attack")
    named: Mapping[str, Any] = attack if isinstance(attack, Mapping) else {}
    steps = f"-{named['steps']}" if named.get("steps") else ""
    return f"{named.get('name', otherwise)}{steps}"


def threat_name(threat: str | None) -> str:
    """`linf:8/255` as `ℓ∞ ≤ 8/255`; a union of threats with all of its parts."""
    if not threat:
        return ""
    if "+" in threat:
        return " ∪ ".join(threat_name(part) for part in threat.split("+"))
    norm, colon, eps = threat.partition(":")
    return f"{NORMS.get(norm, norm)} ≤ {eps}" if colon else threat


def reach(threat: str | None, limits: str = "") -> str:
    """What the adversary may do: the threat, or `1 patch of 8×8, chosen by attention`, in a smaller threat if any."""
    if not limits:
        return threat_name(threat)
    return limits if threat in (None, WHOLE_BOX) else f"{limits}, {threat_name(threat)}"


def reach_of(result: Result) -> str:
    return reach(result.threat, str(result.extra.get("limits", "")))


def attack_name(attack: str | None, suite: str) -> str:
    """`patch_fool` of `patch_fool steps=5`: suite=pgd measures any attack, and the name says which.

    A worst case is that of several, `PGD-l2 + AA-linf`, and the name is all of theirs; what corruptions show is
    described in words, `15 common types × 5 severities`.
    """
    if attack and (suite in _IN_WORDS or " + " in attack or " × " in attack):
        return attack
    return (attack or suite).partition(" ")[0]


def count(number: int) -> str:
    """`5.7 M`, `86 k`: as many digits as tell architectures apart."""
    for size, unit in ((10**9, " B"), (10**6, " M"), (10**3, " k")):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
    return str(number)


def architecture(result: Result) -> str:
    """`vit_digits, 107 k parameters`, as far as it is known."""
    parameters = result.extra.get("parameters")
    return ", ".join(part for part in (result.model, f"{count(parameters)} parameters" if parameters else "") if part)


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def levels(*threats: str | None) -> int:
    """255 where radii were written in 8-bit levels (`linf:8/255`), and should be read so; else 1."""
    return 255 if any("/255" in (threat or "") for threat in threats) else 1


def size(value: float, threat: str | None) -> str:
    """A perturbation's size in the units its threat was written in: `7.9/255` or `0.487`.

    Empty for NaN, which says that the image was not attacked because it was wrong to begin with.
    """
    if math.isnan(value):
        return ""
    return f"{255 * float(value):.1f}/255" if levels(threat) == 255 else f"{float(value):.3g}"


def day(created: str) -> str:
    """`4 March 2026` from an ISO time; the text itself when it is none."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{moment.day} {moment:%B %Y}"


def p_value(p: float) -> str:
    """`p = 0.012`, with spaces that do not break."""
    return "p\u00a0<\u00a00.0001" if p < 1e-4 else f"p\u00a0=\u00a0{p:.2g}"


def duration(seconds: float) -> str:
    """`2.5 h`: as `hardtack plan` writes it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def setting(value: Any) -> str:
    """A configuration value as one short text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(setting(item) for item in value)
    return str(value)
