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
class AnalysedRun:
    """One finding; `run` is the run's place among all, which is its colour."""

    run: int
    name: str
    finding: Finding

    @property
    def weights(self) -> str:
        """Which weights were looked at."""
        return next((str(entry.weights_sha256) for entry in self.finding.results if entry.weights_sha256), "")


def comparable_findings(
    runs: Sequence[Run], analysis: str | Sequence[str], alike: Callable[[Finding], Hashable]
) -> list[list[AnalysedRun]]:
    """The findings of each chart, the one with most runs first; of repeated ones the newest is kept.

    `analysis` is its name, or its names. Findings share a chart where `alike` returns the same for them.
    """
    names = (analysis,) if isinstance(analysis, str) else analysis
    charts: dict[Any, dict[tuple[int, str], Finding]] = defaultdict(dict)
    for number, run in enumerate(runs):
        for finding in run.findings:  # oldest first
            if finding.analysis in names:
                charts[alike(finding)][number, str(finding.about.get("checkpoint") or "")] = finding
    made = [_named(analysed, runs) for analysed in charts.values()]
    return sorted(made, key=lambda analysed: -len(analysed))


def charts_of_groups(
    groups: Sequence[Sequence[AnalysedRun]], draw: Callable[[int, Sequence[AnalysedRun]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What `draw` makes of every group; where several have a chart of one title, it ends with what tells them apart."""
    drawn = [draw(place, analysed) for place, analysed in enumerate(groups)]
    for title in dict.fromkeys(chart["title"] for charts in drawn for chart in charts):
        places = [place for place, charts in enumerate(drawn) if any(chart["title"] == title for chart in charts)]
        for place, apart in zip(places, distinguish([_settings(groups[place]) for place in places]), strict=True):
            for chart in drawn[place]:
                if chart["title"] == title and apart:
                    chart["title"] = f"{title} · {apart}"
    return [chart for charts in drawn for chart in charts]


def _settings(analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    """Those that all of them share, and the images."""
    first, *others = [
        {
            "data": entry.finding.about.get("data"),
            **{key: value for key, value in entry.finding.settings.items() if key not in UNTOLD},
            "n": entry.finding.about.get("n"),
        }
        for entry in analysed
    ]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _named(analysed: dict[tuple[int, str], Finding], runs: Sequence[Run]) -> list[AnalysedRun]:
    several = len({number for number, _ in analysed}) < len(analysed)
    return [
        AnalysedRun(
            run=number,
            name=f"{runs[number].label} ({checkpoint})" if several and checkpoint else runs[number].label,
            finding=finding,
        )
        for (number, checkpoint), finding in sorted(analysed.items(), key=lambda entry: entry[0])
    ]


def where(finding: Finding) -> tuple[Hashable, ...]:
    """Which images were looked at."""
    return finding.about.get("data"), finding.about.get("n"), finding.about.get("data_description")


def described(finding: Finding, *more: str) -> str:
    """A caption: the images, and what else there is to say."""
    data, n = finding.about.get("data"), finding.about.get("n")
    return " · ".join(part for part in (f"{data}, {wording.image_count(n or 0)}" if data else "", *more) if part)


def models_of(analysed: Sequence[AnalysedRun], most: int = 3) -> str:
    """The networks that were looked at, unless they are many; nothing for models without a name."""
    models = list(
        dict.fromkeys(str(entry.finding.about["model"]) for entry in analysed if entry.finding.about.get("model"))
    )
    if len(models) > most:
        return f"{len(models)} networks"
    return wording.listed(models) if models else ""


def file_of(finding: Finding, *more: str) -> str:
    """What tells a chart from others of its kind in the name of a file."""
    return " ".join(str(part) for part in (finding.about.get("data"), finding.about.get("n"), *more) if part)
