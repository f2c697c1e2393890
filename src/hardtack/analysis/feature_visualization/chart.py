"""Pictures of the images that maximise the probability of a class or the activation of a unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

from hardtack.base.registry import charts
from hardtack.report import wording
from hardtack.report.charts.comparable_analyses import (
    AnalysedRun,
    charts_of_groups,
    comparable_findings,
    described,
    file_of,
    where,
)
from hardtack.report.kinds.gallery import column, gallery_chart, picture, pictured, row
from hardtack.results import Finding, Run

SHOWN = 10  # classes, units or images
RUNS = 8
NAMES = ("feature_visualization", "visions")  # the second is its name in version 0.1.0


@charts.register("feature_visualization", section="saliency")
def feature_visualization_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart for each start, threat and set of classes or units."""
    return charts_of_groups(comparable_findings(runs, NAMES, _alike), lambda place, analysed: [_chart(place, analysed)])


def _alike(finding: Finding) -> Hashable:
    left_out = ("batch_size", "others")  # they do not change the pictures
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in left_out)
    images = where(finding) if finding.facts["start"] == "image" else ()  # noise does not depend on the data
    return *images, finding.about.get("data"), finding.facts["threat"], *settings


def _chart(place: int, analysed: Sequence[AnalysedRun]) -> dict[str, Any]:
    analysed, more = pictured(analysed, RUNS)
    first = analysed[0].finding
    facts, of_class = first.facts, first.facts["of"] == "class"
    models = dict.fromkeys(str(entry.finding.about.get("model")) for entry in analysed)
    from_noise = facts["start"] == "noise"
    what = "of the class's probability" if of_class else f"of a channel's mean activation in {facts['block']}"
    return gallery_chart(
        id=f"visions-{place}",
        file=file_of(first, facts["start"], facts["of"], facts["block"], facts["threat"]),
        title="Feature visualization from noise" if from_noise else "Feature visualization from images",
        caption=described(
            first if not from_noise else dataclasses.replace(first, about={}),  # no image of the data was used
            wording.listed(list(models)),
            f"gradient ascent {what}: {facts['steps']} steps, {wording.threat_name(facts['threat'])}",
            f"below: the {'probability' if of_class else 'activation'} that was reached",
            more,
        ),
        views=[
            {"name": name, "file": name, "columns": _columns(first), "rows": _rows(analysed, array)}
            for name, array in (("the image", "vision"), ("the change alone", "change"))
        ],
    )


def _columns(finding: Finding) -> list[dict[str, Any]]:
    return [column(_name(finding, i)) for i in range(min(SHOWN, len(finding.facts["goals"])))]


def _rows(analysed: Sequence[AnalysedRun], array: str) -> list[dict[str, Any]]:
    """A row for the start images, which are the same for all runs, and a row for every run."""
    first = analysed[0].finding
    shown = range(min(SHOWN, len(first.facts["goals"])))
    starts = row(
        "noise" if first.facts["start"] == "noise" else "image", [picture(first.arrays["start"][i]) for i in shown]
    )
    return [
        starts,
        *(row(entry.name, [_cell(entry.finding, array, i) for i in shown], entry.run) for entry in analysed),
    ]


def _cell(finding: Finding, array: str, i: int) -> dict[str, Any] | None:
    arrays = finding.arrays
    if i >= len(arrays["after"]):
        return None
    reached = f"{100 * arrays['after'][i]:.0f}%" if finding.facts["of"] == "class" else f"{arrays['after'][i]:.2f}"
    return picture(arrays[array][i], reached, f"change of size {arrays['size'][i]:.3g}")


def _name(finding: Finding, i: int) -> str:
    goal = str(finding.facts["goals"][i])
    goal = wording.class_name(goal) if finding.facts["of"] == "class" else goal
    return goal if finding.facts["start"] == "noise" else f"image {finding.arrays['index'][i]} → {goal}"
