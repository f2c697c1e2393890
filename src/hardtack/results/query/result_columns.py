"""The columns of the tables `results` and `flags`.

`results` has further columns that are computed when a query asks for them (see `database`): `EVIDENCE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.results.disagreement import STATES
from hardtack.results.metrics import lower_is_better
from hardtack.results.query.columns import BOOL, NUMBER, TEXT, TEXTS, TIME, WHOLE, Column, Json
from hardtack.results.query.folders import Folder
from hardtack.results.record import REPORTED, Result, comparable
from hardtack.results.threat_text import parse_threat

CLEAN = "clean_accuracy"


@dataclass(frozen=True)
class Measured:
    """A result with its place among all results of the query."""

    row: int
    folder: Folder
    result: Result
    is_latest: bool


def measured(folders: list[Folder]) -> list[Measured]:
    """All results. Of numbers measured in the same way for one checkpoint of a run the newest is the latest."""
    entries = [(folder, result) for folder in folders for result in folder.results]
    newest: dict[tuple[Any, ...], tuple[str, int]] = {}
    keys = [(folder.label, str(result.checkpoint), comparison(result)) for folder, result in entries]
    for row, (_, result) in enumerate(entries):
        newest[keys[row]] = max(newest.get(keys[row], ("", -1)), (result.created, row))
    return [Measured(row, folder, result, newest[keys[row]][1] == row) for row, (folder, result) in enumerate(entries)]


def comparison(result: Result) -> str:
    """Equal for numbers that may be compared. A clean accuracy does not depend on the suite that measured it."""
    if result.metric == CLEAN and not result.protocol:
        key: tuple[Any, ...] = (
            CLEAN,
            result.data,
            result.n,
            result.data_description,
            result.extra.get("source") == REPORTED,
        )
    else:
        key = comparable(result)
    return json_digest([*key, result.extra.get("column")])[:10]


def _ball(result: Result) -> tuple[str | None, float | None]:
    try:
        return parse_threat(result.threat or "")
    except UserError:
        return None, None


def _of(name: str) -> Callable[[Measured], Any]:
    return lambda entry: getattr(entry.result, name)


def _extra(name: str) -> Callable[[Measured], Any]:
    return lambda entry: entry.result.extra.get(name)


def _count(level: str) -> Callable[[Measured], int]:
    return lambda entry: sum(flag["level"] == level for flag in entry.result.flags)


def _codes(entry: Measured) -> list[str]:
    return [f"{flag['level']}:{flag['code']}" for flag in entry.result.flags]


COMPARISON = "equal for numbers that may be compared: same images, attack, settings and precision"
LATEST = "whether it is the newest of its run and checkpoint that was measured in this way"
RESULTS = [
    Column("run", TEXT, "the run", lambda e: e.folder.label),
    Column("evaluation", TEXT, "the id of the evaluation or analysis", _of("evaluation")),
    Column("metric", TEXT, "what was measured: clean_accuracy, robust_accuracy, …", _of("metric")),
    Column("value", NUMBER, "the number; accuracies are fractions", _of("value")),
    Column("low", NUMBER, "the lower end of its interval", _of("low")),
    Column("high", NUMBER, "the upper end of its interval", _of("high")),
    Column("n", WHOLE, "the number of images", _of("n")),
    Column("suite", TEXT, "the suite: pgd, autoattack, corruptions, …", _of("suite")),
    Column("threat", TEXT, "the threat: linf:8/255", _of("threat")),
    Column("norm", TEXT, "its norm", lambda e: _ball(e.result)[0]),
    Column("eps", NUMBER, "its radius as a number", lambda e: _ball(e.result)[1]),
    Column("attack", TEXT, "the attack, the corruption or the kind of view", _of("attack")),
    Column("tier", TEXT, "the tier of AutoAttack", lambda e: e.result.attack_settings.get("tier")),
    Column("attack_settings", Json, "all settings of the measurement", _of("attack_settings")),
    Column("data", TEXT, "the images", _of("data")),
    Column("data_description", TEXT, "how they were made: size, crop, how many", _of("data_description")),
    Column("protocol", TEXT, "the protocol that the number is a column of", _of("protocol")),
    Column("part", TEXT, "the column of the protocol, or the layer or class of an analysis", _extra("column")),
    Column("source", TEXT, "official or regenerated files, or reported by others", _extra("source")),
    Column("model", TEXT, "the architecture", _of("model")),
    Column("parameters", WHOLE, "its number of parameters", _extra("parameters")),
    Column("checkpoint", TEXT, "best, last or a file", _of("checkpoint")),
    Column("weights_sha256", TEXT, "the digest of the weights", _of("weights_sha256")),
    Column("seed", WHOLE, "the seed of the measurement", _of("seed")),
    Column("precision", TEXT, "the precision of the search and of its verification", _of("precision")),
    Column("device", TEXT, "the device", _of("device")),
    Column("seconds", NUMBER, "how long the evaluation took", _of("seconds")),
    Column("created", TIME, "when it was measured (UTC)", _of("created")),
    Column("lower_is_better", BOOL, "whether a smaller value is better", lambda e: lower_is_better(e.result.metric)),
    Column("comparison", TEXT, COMPARISON, lambda e: comparison(e.result)),
    Column("latest", BOOL, LATEST, lambda e: e.is_latest),
    Column("flags", TEXTS, "the codes of its warnings: ['red:zero_gradient']", _codes),
    Column("red_flags", WHOLE, "how many of them are red", _count("red")),
    Column("yellow_flags", WHOLE, "how many of them are yellow", _count("yellow")),
    Column("extra", Json, "what else is stored with the number: extra->'$.per_class'", _of("extra")),
]  # fmt: skip
ROW = Column("_row", WHOLE, "", lambda e: e.row)
EVIDENCE = [
    Column("evidence", TEXT, f"whether the files beside the number agree with it: {', '.join(STATES)}"),
    Column("evidence_note", TEXT, "why they do not, or what is missing"),
    Column("trusted", BOOL, "no red flag, and evidence that agrees (or lacks the record only)"),
]

FLAGS = [
    Column("run", TEXT, "the run", lambda e, flag: e.folder.label),
    Column("evaluation", TEXT, "the id of the evaluation", lambda e, flag: e.result.evaluation),
    Column("metric", TEXT, "the number that it is on", lambda e, flag: e.result.metric),
    Column("threat", TEXT, "its threat", lambda e, flag: e.result.threat),
    Column("level", TEXT, "red: do not quote the number; yellow: read it before", lambda e, flag: flag["level"]),
    Column("code", TEXT, "its name: zero_gradient", lambda e, flag: flag["code"]),
    Column("message", TEXT, "what was seen", lambda e, flag: flag["message"]),
]  # fmt: skip


def flags_rows(entries: list[Measured]) -> list[tuple[Any, ...]]:
    return [(entry, flag) for entry in entries for flag in entry.result.flags]
