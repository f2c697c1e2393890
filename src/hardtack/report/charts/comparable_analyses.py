"""Whose findings stand beside each other in a chart: runs, or checkpoints of one, analysed in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.report import wording
from hardtack.results import Finding, Run, distinguish

UNTOLD = ("n", "batch_size", "shown")  # what `about` says better, and settings that change no number


@dataclass(frozen=True, kw_only=True)
class Found:
    """One finding; `run` is the run's place among all, which is its colour."""

    run: int
    name: str
    finding: Finding

    @property
    def weights(self) -> str:
        """Which weights were looked at."""
        return next((str(one.weights_sha256) for one in self.finding.results if one.weights_sha256), "")


def findings_beside(runs: Sequence[Run], analysis: str, alike: Callable[[Finding], Hashable]) -> list[list[Found]]:
    """The findings of each chart, the fullest chart first; of repeated ones the newest is kept."""
    charts: dict[Any, dict[tuple[int, str], Finding]] = defaultdict(dict)
    for number, run in enumerate(runs):
        for finding in run.findings:  # oldest first
            if finding.analysis == analysis:
                charts[alike(finding)][number, str(finding.about.get("checkpoint") or "")] = finding
    made = [_named(found, runs) for found in charts.values()]
    return sorted(made, key=lambda found: -len(found))


def charts_of(
    groups: Sequence[Sequence[Found]], draw: Callable[[int, Sequence[Found]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What `draw` makes of every group; where several have a chart of one title, it ends with what tells them apart."""
    drawn = [draw(place, found) for place, found in enumerate(groups)]
    for title in dict.fromkeys(chart["title"] for charts in drawn for chart in charts):
        places = [place for place, charts in enumerate(drawn) if any(chart["title"] == title for chart in charts)]
        for place, apart in zip(places, distinguish([_settings(groups[place]) for place in places]), strict=True):
            for chart in drawn[place]:
                if chart["title"] == title and apart:
                    chart["title"] = f"{title} · {apart}"
    return [chart for charts in drawn for chart in charts]


def _settings(found: Sequence[Found]) -> dict[str, Any]:
    """Those that all of them share, and the images."""
    first, *others = [
        {
            "data": one.finding.about.get("data"),
            **{key: value for key, value in one.finding.settings.items() if key not in UNTOLD},
            "n": one.finding.about.get("n"),
        }
        for one in found
    ]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _named(found: dict[tuple[int, str], Finding], runs: Sequence[Run]) -> list[Found]:
    several = len({number for number, _ in found}) < len(found)
    return [
        Found(
            run=number,
            name=f"{runs[number].label} ({checkpoint})" if several and checkpoint else runs[number].label,
            finding=finding,
        )
        for (number, checkpoint), finding in sorted(found.items(), key=lambda one: one[0])
    ]


def where(finding: Finding) -> tuple[Hashable, ...]:
    """Which images were looked at."""
    return finding.about.get("data"), finding.about.get("n"), finding.about.get("data_description")


def described(finding: Finding, *more: str) -> str:
    """A caption: the images, and what else there is to say."""
    data, n = finding.about.get("data"), finding.about.get("n")
    return " · ".join(part for part in (f"{data}, {wording.image_count(n or 0)}" if data else "", *more) if part)


def models_of(found: Sequence[Found], most: int = 3) -> str:
    """The networks that were looked at, unless they are many."""
    models = list(dict.fromkeys(str(one.finding.about["model"]) for one in found if one.finding.about.get("model")))
    return wording.listed(models) if len(models) <= most else f"{len(models)} networks"


def file_of(finding: Finding, *more: str) -> str:
    """What tells a chart from others of its kind in the name of a file."""
    return " ".join(str(part) for part in (finding.about.get("data"), finding.about.get("n"), *more) if part)
