"""The index of a site: the values that its script filters, sorts and draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hardtack import __version__
from hardtack.report import palette, wording
from hardtack.report.headline_column import BROKEN, UNHARMED
from hardtack.report.page import Shared, render_shared
from hardtack.report.site.evidence import BADGES, MEANS
from hardtack.results.distinguish import distinguish

Record = Mapping[str, Any]


def index_html(
    runs: Sequence[Record], studies: Sequence[Record], problems: Sequence[str], *, title: str, shared: Shared
) -> str:
    """The index over the records of runs and studies."""
    ways = _ways(runs)
    files = sorted(path for run in runs for path in run["more"])
    values = {
        "title": title,
        "generated": wording.day(datetime.now(UTC).isoformat()),
        "version": __version__,
        "summary": _summary(runs, studies, ways),
        "studies": studies,
        "problems": problems,
        "model_infos": files,
        "waiting": [{"name": run["label"], "page": run["page"]} for run in runs if not run["entries"]],
        "badges": [(text, colour, MEANS[state]) for state, (text, colour) in BADGES.items()],
    }
    data = {
        "charts": {},
        "pair": None,
        "settings": {"coloured": len(palette.COLOURS), "solid": palette.SOLID},
        "site": {
            "ways": [_way(way) for way in ways.values()],
            "runs": [{"name": run["label"], "page": run["page"], "model": run["architecture"]} for run in runs],
            "rows": _rows(runs, list(ways)),
            "badges": {state: list(entry) for state, entry in BADGES.items()},
        },
    }
    return render_shared("site_index.html", values, data, shared)


def _ways(runs: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Every way in which numbers were measured, by its key: the most telling first, with names that differ."""
    ways: dict[str, dict[str, Any]] = {}
    for run in runs:
        for entry in run["entries"]:
            way = ways.setdefault(entry["way"]["key"], {**entry["way"], "values": [], "runs": set(), "models": set()})
            way["values"].append(entry["value"])
            way["runs"].add(run["label"])
    by_name: dict[str, list[dict[str, Any]]] = {}
    for way in ways.values():
        way["name"] = _name(way)
        by_name.setdefault(way["name"], []).append(way)
    for same in by_name.values():
        if len(same) > 1:
            facts = [{"images": way["about"], "protocol": way["protocol"], **way["settings"]} for way in same]
            for way, told in zip(same, distinguish(facts), strict=True):
                way["name"] += f" · {told}" if told else ""
    return dict(sorted(ways.items(), key=lambda item: _rank(item[1])))


def _name(way: Mapping[str, Any]) -> str:
    parts = [way["attack"], way["threat"], way["data"], way["images"], way["source"]]
    about = " · ".join(part for part in parts if part)
    return f"{way['title']}: {about}" if about else str(way["title"])


def _rank(way: Mapping[str, Any]) -> tuple[Any, ...]:
    """As the headlines of a report choose: measured here, for many runs, telling, a worst case, not of a sweep."""
    best, worst = max(way["values"]), min(way["values"])
    accuracy = way["percent"] and not way["lower"]
    return (
        way["reported"],
        way["order"] is None,
        -len(way["runs"]),
        not (not accuracy or (best > BROKEN and worst < UNHARMED)),
        math.inf if way["order"] is None else way["order"],
        way["swept"],
        way["suite"] != "autoattack",
        worst - best,
        way["name"],
    )


def _way(way: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "title", "lower", "percent", "data", "threat", "attack", "suite", "reported", "beside")
    return {
        **{name: way[name] for name in names},
        "count": len(way["values"]),
        "clean": way["metric"] == "clean_accuracy",
    }


def _rows(runs: Sequence[Record], ways: Sequence[str]) -> list[list[Any]]:
    """One line for each number; a checkpoint is named where a run has several."""
    place = {key: number for number, key in enumerate(ways)}
    rows = []
    for number, run in enumerate(runs):
        several = len({entry["checkpoint"] for entry in run["entries"]}) > 1
        for entry in run["entries"]:
            flags = [[flag["level"], flag["code"], flag["message"]] for flag in entry["flags"]]
            parameters = entry["parameters"] or run["parameters"]
            model = entry["model"] or run["architecture"]
            rows.append([
                number, place[entry["way"]["key"]], entry["checkpoint"] if several else "", model,
                parameters, wording.count(parameters) if parameters else "", entry["value"], entry["text"],
                entry["interval"], entry["clean"], entry["clean_text"], entry["evidence"], entry["about"], flags,
            ])  # fmt: skip
    return rows


def _summary(runs: Sequence[Record], studies: Sequence[Record], ways: Mapping[str, Any]) -> str:
    def counted(count: int, word: str, words: str) -> str:
        return f"{count:,} {word if count == 1 else words}"

    parts = [counted(len(runs), "run", "runs")]
    parts += [counted(len(studies), "study", "studies")] if studies else []
    numbers = sum(len(run["entries"]) for run in runs)
    if numbers:
        parts.append(f"{counted(numbers, 'number', 'numbers')} measured in {counted(len(ways), 'way', 'ways')}")
    return " · ".join(parts)
