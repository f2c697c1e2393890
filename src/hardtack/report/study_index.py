"""One page over all studies: what was run at which scale, and what became of the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from hardtack import __version__
from hardtack.base.files import write_text
from hardtack.report import palette, wording
from hardtack.report.page import render_page
from hardtack.report.study_page import count_badges
from hardtack.report.study_view import VERDICTS

SUPPLEMENTS = "Beyond the tables and figures"
SMOKE = "smoke"  # a scale whose verdicts say nothing about the paper: they are shown, and not counted


class IndexEntry(TypedDict):
    """A study in the list of all. `group` is the heading it stands under; supplements have one of their own.

    `state` says in words how far it is ("not run yet", "3 rows failed"). `counts` are the claims by verdict. `page` is
    the study's page, relative to the folder of the index; None where there is none yet.
    """

    name: str
    title: str
    paper: str
    group: str
    kind: str
    supplement: bool
    state: str
    scale: str
    seeds: int
    rows_done: int
    rows_all: int
    counts: Mapping[str, int]
    seconds: float
    page: str | None


def write_study_index(entries: Sequence[IndexEntry], output: str | Path) -> Path:
    """Write the page to `output`: groups in the order of their first study, supplements last."""
    groups: dict[str, list[IndexEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry["supplement"]):  # stable
        groups.setdefault(SUPPLEMENTS if entry["supplement"] else entry["group"], []).append(entry)
    values = {
        "title": "All studies",
        "generated": wording.day(datetime.now(UTC).isoformat()),
        "version": __version__,
        "summary": _summary(entries),
        "counts": count_badges(_total(entries)),
        "verdicts": list(VERDICTS),
        "smoke": any(entry["scale"] == SMOKE for entry in entries),
        "groups": [{"title": title, "entries": [_entry(entry) for entry in group]} for title, group in groups.items()],
        "parts": [],
        "training": [],
        "pair": None,
        "coloured": len(palette.COLOURS),
        "solid": palette.SOLID,
    }
    return write_text(output, render_page(values, "study_index.html", styles=["study"]))


def _entry(entry: IndexEntry) -> dict[str, Any]:
    return {
        **entry,
        # quoted, so that whatever stands there is a path and never another scheme
        "link": quote(entry["page"], safe="/") if entry["page"] else "",
        "badges": _badges(entry),
        "trouble": ", ".join(part for part in entry["state"].split(", ") if not part.endswith(" rows")),
        "rows": f"{entry['rows_done']} of {entry['rows_all']}",
        "time": wording.duration(entry["seconds"]) if entry["seconds"] else "",
    }


def _badges(entry: IndexEntry) -> list[dict[str, Any] | None]:
    """One for each verdict that a claim of the study has, in the order of the columns; grey where it says nothing."""
    badges = {badge["verdict"]: badge for badge in count_badges(dict(entry["counts"]))}
    grey = {"colour": "grey"} if entry["scale"] == SMOKE else {}
    return [{**badges[verdict], **grey} if verdict in badges else None for verdict in VERDICTS]


def _total(entries: Sequence[IndexEntry]) -> dict[str, int]:
    counted = [entry["counts"] for entry in entries if entry["scale"] != SMOKE]
    return {verdict: sum(counts.get(verdict, 0) for counts in counted) for verdict in VERDICTS}


def _summary(entries: Sequence[IndexEntry]) -> str:
    started = sum(entry["rows_done"] > 0 for entry in entries)
    seconds = sum(entry["seconds"] for entry in entries)
    spent = f", {wording.duration(seconds)} of computing" if seconds else ""
    studies = "1 study" if len(entries) == 1 else f"{len(entries)} studies"
    return f"{studies}, {started} with measured rows{spent}"
