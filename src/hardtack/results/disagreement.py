"""Disagreement: a field of a stored result that its evidence contradicts, with both values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hardtack.base.limits import shorten
from hardtack.results.record import Result

VERDICTS, RECORD = "the verdict file", "the evidence record"
# what can be said of a number and the evidence beside it, best first; "no record": only settings are not tied to it
STATES = ("agrees", "no record", "unverifiable", "reported", "disagrees")


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A field of a result whose stored value is not what its evidence gives."""

    about: str
    field: str
    stored: Any
    evidence: Any
    source: str = VERDICTS

    def __str__(self) -> str:
        about = f"{self.about}: " if self.about else ""
        path, stored, expected = _first_difference(self.stored, self.evidence)
        source = f" ({self.source})" if self.source else ""
        return f"{about}{self.field}{path}: stored {_shown(stored)}, expected {_shown(expected)}{source}"


@dataclass(frozen=True)
class Unverifiable:
    """Why a number cannot be verified: the one that `about` names, or ("") all of the evaluation."""

    about: str
    reason: str

    def __str__(self) -> str:
        return f"{self.about}: {self.reason}" if self.about else self.reason


@dataclass
class Agreement:
    """What the check of one evaluation came to: fields that are wrong, and what cannot be verified, with the reason."""

    wrong: list[Disagreement] = field(default_factory=list)
    unverifiable: list[Unverifiable] = field(default_factory=list)
    reported: bool = False  # by others: nothing was measured here
    has_record: bool = True  # False: settings, model and data are tied to the verdicts by the id alone

    def of(self, result: Result) -> tuple[str, str]:
        """The state of one result of this evaluation, a word of `STATES`, and the first reason for it."""
        if self.reported:
            return "reported", "the number is reported by others and was not measured here"
        name = label(result)
        wrong = [entry for entry in self.wrong if entry.about in ("", name)]
        if wrong:
            return "disagrees", str(wrong[0])
        reasons = [entry.reason for entry in self.unverifiable if entry.about in ("", name)]
        if reasons:
            return "unverifiable", reasons[0]
        return ("agrees", "") if self.has_record else ("no record", "its settings are not tied to its verdicts")

    def supports(self, result: Result) -> bool:
        """Whether the files beside a result agree with it; its settings may be untied to them (version 0.1.0)."""
        return self.of(result)[0] in ("agrees", "no record")

    def cannot_verify(self, reason: str, result: Result | None = None) -> None:
        """Note why `result`, or every number of the evaluation, cannot be verified."""
        self.unverifiable.append(Unverifiable("" if result is None else label(result), reason))

    @property
    def text(self) -> str:
        """One line for tables."""
        if self.wrong:
            return f"DISAGREES: {self.wrong[0]}"
        if self.unverifiable:
            return f"not verifiable: {self.unverifiable[0]}"
        tied = "" if self.has_record else "; its settings are not verifiable here (no evidence record)"
        return f"agrees with its verdict file{tied}"


def label(result: Result) -> str:
    """`robust_accuracy linf:8/255`: how a line of results.jsonl is named in messages."""
    parts = (result.metric, result.threat or result.attack or "", result.extra.get("column", ""))
    return " ".join(str(part) for part in parts if part)


def wrong_field(result: Result, name: str, stored: Any, expected: Any, source: str = VERDICTS) -> Disagreement:
    return Disagreement(about=label(result), field=name, stored=stored, evidence=expected, source=source)


def wrong_file(name: str, stored: Any, expected: Any, source: str = "") -> Disagreement:
    return Disagreement(about="", field=f"verdict file, {name}", stored=stored, evidence=expected, source=source)


def same_number(stored: Any, expected: Any) -> bool:
    if isinstance(stored, float | int) and isinstance(expected, float | int):
        return abs(stored - expected) < 1e-6
    return bool(stored == expected)


def _first_difference(stored: Any, expected: Any) -> tuple[str, Any, Any]:
    """The path to the first entry in which two nested values differ, and both entries."""
    if isinstance(stored, dict) and isinstance(expected, dict) and set(stored) == set(expected):
        keys: list[Any] = [key for key in stored if stored[key] != expected[key]]
    elif isinstance(stored, list) and isinstance(expected, list) and len(stored) == len(expected):
        keys = [place for place, value in enumerate(stored) if value != expected[place]]
    else:
        keys = []
    if not keys:
        return "", stored, expected
    path, stored, expected = _first_difference(stored[keys[0]], expected[keys[0]])
    return f".{keys[0]}{path}", stored, expected


def _shown(value: Any) -> str:
    return shorten(value if isinstance(value, str) else repr(value), 200)
