"""One row of the gauntlet: a mechanism, its truth, and what an evaluator said about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TOLERANCE = 0.01  # a number is right up to one point above the truth
RIGHT, FLAGGED, REFUSED, FAILED, SILENT, FALSE_ALARM = (
    "right", "flagged", "refused", "failed", "SILENT", "FALSE ALARM",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """What an evaluator said about a mechanism, beside the best known robust accuracy.

    truth        the best known robust accuracy; it can fall when other evaluators find more
    number       the robust accuracy that the evaluator reports; None where it refused
    red, yellow  the codes of its flags
    """

    mechanism: str
    family: str
    evaluator: str
    truth: float
    clean: float
    number: float | None
    red: tuple[str, ...] = ()
    yellow: tuple[str, ...] = ()
    refused: str = ""
    failed: str = ""
    seconds: float = 0.0
    honest: bool = False
    random: bool = False
    n: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Of a number: right, flagged (too high, with a red flag) or SILENT (too high, and no red flag).

        `refused`: the evaluator declined to give a number. `failed`: it ended with an exception. `FALSE ALARM`: a red
        flag or a refusal on a model that hides nothing.
        """
        if self.failed:
            return FAILED
        if self.honest and (self.red or self.number is None):
            return FALSE_ALARM
        if self.number is None:
            return REFUSED
        if self.number <= self.truth + TOLERANCE + 1e-9:
            return RIGHT
        return FLAGGED if self.red else SILENT

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Row:
        """A row from its JSON."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**{**known, "red": tuple(known.get("red", ())), "yellow": tuple(known.get("yellow", ()))})


def counts(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """By evaluator: how many rows have each verdict."""
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        own = table.setdefault(row.evaluator, dict.fromkeys((RIGHT, FLAGGED, REFUSED, FAILED, SILENT, FALSE_ALARM), 0))
        own[row.verdict] += 1
    return table


def cell(row: Row | None) -> str:
    """`12.0 % SILENT`, `0.0 %`, `96.0 % red: zero_gradient`."""
    if row is None:
        return "not run"
    if row.number is None:
        return f"{row.verdict}: {(row.refused or row.failed).split(';')[0][:40]}"
    mark = {RIGHT: "", FLAGGED: " flagged", SILENT: " SILENT", FALSE_ALARM: " FALSE ALARM"}[row.verdict]
    flags = f" ({', '.join(row.red)})" if row.red else f" ({', '.join(row.yellow)}, yellow)" if row.yellow else ""
    return f"{100 * row.number:.1f} %{mark}{flags}"


def table_lines(rows: Sequence[Row], *, markdown: bool = False) -> list[str]:
    """One line per mechanism, one column per evaluator, then the counts."""
    evaluators = list(dict.fromkeys(row.evaluator for row in rows))
    by_key = {(row.mechanism, row.evaluator): row for row in rows}
    header = ("mechanism", "family", "drawn", "clean", "truth", *evaluators)
    lines: list[tuple[str, ...]] = [header]
    for row in {row.mechanism: row for row in rows}.values():
        drawn = " ".join(f"{name}={value}" for name, value in row.parameters.items())
        cells = [cell(by_key.get((row.mechanism, evaluator))) for evaluator in evaluators]
        truth = f"{100 * row.truth:.1f} %" + (" random" if row.random else "")
        lines.append((row.mechanism, row.family, drawn, f"{100 * row.clean:.1f} %", truth, *cells))
    summary: list[tuple[str, ...]] = [("evaluator", RIGHT, FLAGGED, REFUSED, FAILED, SILENT, FALSE_ALARM, "seconds")]
    for evaluator, own in counts(rows).items():
        seconds = sum(row.seconds for row in rows if row.evaluator == evaluator)
        summary.append((evaluator, *(str(number) for number in own.values()), f"{seconds:.0f}"))
    return [*_layout(lines, markdown), "", *_layout(summary, markdown)]


def _layout(rows: Sequence[tuple[str, ...]], markdown: bool) -> list[str]:
    if markdown:
        rule = "|" + "---|" * len(rows[0])
        written = ["| " + " | ".join(row) + " |" for row in rows]
        return [written[0], rule, *written[1:]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
