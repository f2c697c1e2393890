"""What the index says of a run: one entry for each number that a leaderboard can rank, as plain values.

An entry names its *way*: everything that two numbers must share to be compared (data, images, attack and its settings,
threat, protocol, precision). The index ranks and draws only numbers of one way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hardtack.base.config import flat
from hardtack.base.digests import json_digest
from hardtack.base.limits import shorten
from hardtack.report import wording
from hardtack.report.headline_column import WORST_CASE, swept_rows
from hardtack.report.site.evidence import Verified, badge
from hardtack.results import PROTOCOL, Result, Row, Run, comparable, curves, find_metric, leaderboard, source_of
from hardtack.results.leaderboard import CLEAN, distinct_flags

Entry = dict[str, Any]
_MOST_VALUE = 1e6  # of a metric that is no share
_MOST_PARAMETERS = 10**13
_MOST_FLAGS = 12
_TEXT = 160
_WORST = " + "  # between the columns whose worst case a column is


def entries_of(run: Run, verified: Mapping[str, Verified]) -> tuple[list[Entry], list[str]]:
    """The entries of a run, and a sentence for every number that is left out because it cannot be one."""
    problems: list[str] = []
    entries = []
    for row, result, swept in _numbers(run):
        if not _is_sound(result):
            about = f"{shorten(result.metric)} {shorten(result.threat or result.attack or '')}"
            problems.append(f"{about} is {result.value:.6g} on {result.n} images, which it cannot be; it was left out")
            continue
        entries.append(_entry(run, row, result, swept, verified.get(result.evaluation)))
    return entries, list(dict.fromkeys(problems))


def architecture_of(run: Run) -> tuple[str, int | None]:
    """The model that a run measured, or trained, and its parameters as far as they are known."""
    for result in reversed(run.results):
        if result.model:
            return shorten(result.model, 80), _parameters(result)
    section = run.config.get("model")
    name = section.get("name") if isinstance(section, Mapping) else section
    return (shorten(name, 80) if isinstance(name, str) else ""), None


def _numbers(run: Run) -> list[tuple[Row, Result, bool]]:
    """Every number that can be ranked, with its row, and whether it is a radius of a sweep."""
    found = [
        (row, result, False) for table in leaderboard([run]) for row in table.rows for result in row.cells.values()
    ]
    swept = [row for charted in curves([run]) for curve in charted.curves for row in swept_rows(curve)]
    found += [(row, result, True) for row in swept for result in row.cells.values()]
    for result in run.results:  # a protocol's worst case is the only column that is no copy of another number
        if result.suite == PROTOCOL and result.metric == WORST_CASE and _WORST in str(result.attack):
            beside = [other for other in run.results if other.suite == PROTOCOL and other.metric == CLEAN]
            clean = next((other for other in beside if other.evaluation == result.evaluation), None)
            row = Row(run=run.label, checkpoint=result.checkpoint, clean=clean, cells={result.threat: result})
            found.append((row, result, False))
    return found


def _entry(run: Run, row: Row, result: Result, swept: bool, verified: Verified | None) -> Entry:
    state, about = badge(run.agreements.get(result.evaluation), verified, result.metric)
    clean = row.clean if row.clean is not None and _is_sound(row.clean) else None
    own = [result] if clean is None else [result, clean]
    flags = [
        {"level": flag["level"], "code": shorten(flag["code"], 60), "message": shorten(flag["message"], 400)}
        for flag in distinct_flags(own)[:_MOST_FLAGS]
    ]
    return {
        "way": way_of(result, swept),
        "checkpoint": shorten(result.checkpoint or "", 60),
        "model": shorten(result.model, 80),
        "parameters": _parameters(result),
        "value": result.value,
        "text": wording.number(result.value, result.metric),
        "interval": _interval(result),
        "clean": None if clean is None or result.metric == CLEAN else clean.value,
        "clean_text": "" if clean is None or result.metric == CLEAN else wording.number(clean.value, CLEAN),
        "evidence": state,
        "about": about,
        "flags": flags,
    }


def way_of(result: Result, swept: bool = False) -> dict[str, Any]:
    """How a number was measured: `key` is equal for numbers that may be compared."""
    settings = {key: value for key, value in flat(result.attack_settings).items() if _is_short(value)}
    data = shorten(result.data, _TEXT)
    return {
        "key": json_digest(comparable(result))[:16],
        "metric": result.metric,
        "title": shorten(wording.metric_name(result.metric), 80),
        "lower": find_metric(result.metric).lower_is_better,
        "percent": find_metric(result.metric).percent,
        "order": find_metric(result.metric).order,
        "suite": shorten(result.suite, 60),
        "attack": "" if result.metric == CLEAN else shorten(wording.attack_name(result.attack, result.suite), _TEXT),
        "threat": shorten(wording.reach_of(result), _TEXT),
        "data": data,
        "images": wording.image_count(result.n) if result.n else "",
        "about": shorten(result.data_description, _TEXT),
        "protocol": shorten(result.protocol, _TEXT),
        "source": shorten(wording.source(source_of(result)), 80),
        "reported": source_of(result) == "reported",
        "swept": swept,
        "settings": {
            **dict(list(settings.items())[:40]),
            "precision": result.precision,
            "attack": shorten(result.attack or "", _TEXT),
        },
        # reported numbers are drawn beside measured ones on the same data under the same threat
        "beside": [data.split("/")[0], result.threat, result.metric],
    }


def _is_sound(result: Result) -> bool:
    """A share lies between 0 and 1 (errors relative to another model's may be larger); nothing is astronomic."""
    metric = find_metric(result.metric)
    top = 1.0 if metric.percent and not metric.lower_is_better else _MOST_VALUE
    bottom = 0.0 if metric.percent else -_MOST_VALUE
    return math.isfinite(result.value) and bottom <= result.value <= top and 0 <= result.n < 2**40


def _interval(result: Result) -> str:
    bounds: Sequence[float | None] = (result.low, result.high)
    return wording.interval(result) if all(bound is not None and abs(bound) <= _MOST_VALUE for bound in bounds) else ""


def _parameters(result: Result) -> int | None:
    """As the evaluation counted them; a stranger's file may say anything."""
    count = result.extra.get("parameters")
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 < count < _MOST_PARAMETERS
    return count if is_count else None


def _is_short(value: Any) -> bool:
    if isinstance(value, int | float):
        return abs(value) < 2**63
    return value is None or (isinstance(value, str) and len(value) <= 60)
