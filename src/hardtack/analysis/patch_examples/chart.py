"""Pictures of images with damaged patches, with the probability of the true class below each."""

from __future__ import annotations

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

NOT_COMPARED = ("n", "batch_size", "shown")
RUNS = 6
WORDS = {"clean": "clean", "pgd": "attacked", "noise": "noise added", "occlude": "occluded by noise", "drop": "dropped"}


@charts.register("patch_examples", section="occlusion")
def patch_examples_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One chart for each choice of patches and kinds of damage."""
    groups = comparable_findings(runs, "patch_examples", _alike)
    return charts_of_groups(groups, _charts)


def _alike(finding: Finding) -> Hashable:
    settings = sorted((name, str(value)) for name, value in finding.settings.items() if name not in NOT_COMPARED)
    return *where(finding), *settings


def _charts(place: int, analysed: Sequence[AnalysedRun]) -> list[dict[str, Any]]:
    drawn, more = pictured([entry for entry in analysed if "shown" in entry.finding.arrays], RUNS)
    if not drawn:
        return []
    first = drawn[0].finding
    facts, models = first.facts, dict.fromkeys(str(entry.finding.about.get("model")) for entry in drawn)
    size = f"{facts['patch_size']}×{facts['patch_size']}"
    by = "at random" if facts["chosen_by"] == "random" else "by a trained occluder"
    what = f"{facts['patches']} of {facts['of']} patches of {size}, chosen {by}"
    return [
        gallery_chart(
            id=f"patch-examples-{place}",
            file=file_of(first, facts["chosen_by"]),
            title="Images with damaged patches",
            caption=described(
                first, wording.listed(list(models)), what, "below: the probability of the true class", more
            ),
            views=[_view(entry) for entry in drawn],
        )
    ]


def _view(entry: AnalysedRun) -> dict[str, Any]:
    finding = entry.finding
    arrays, names = finding.arrays, finding.facts["shown_as"]
    classes = finding.about.get("classes", [])
    rows = []
    for i, pictures in enumerate(arrays["shown"]):
        label = int(arrays["label"][i])
        label_name = wording.class_name(str(classes[label] if label < len(classes) else label))
        sure = arrays["confidence"][i]
        cells = [picture(pixels, f"{100 * value:.1f}%") for pixels, value in zip(pictures, sure, strict=True)]
        rows.append(row(f"image {arrays['index'][i]}, {label_name}", cells))
    columns = [column(WORDS[name], entry.run) for name in names]
    return {"name": entry.name, "file": entry.name, "columns": columns, "rows": rows}
